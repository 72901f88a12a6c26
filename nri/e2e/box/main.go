// Command box is the only program of the image. As it is it waits for a signal, which makes it the pause
// process of a pod; "box show" prints its environment before, and "box env" only that. "box device PATH"
// says what is there.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) == 3 {
		var found syscall.Stat_t
		if err := syscall.Stat(os.Args[2], &found); err != nil || found.Mode&syscall.S_IFMT != syscall.S_IFCHR {
			fmt.Println("no device:", err)
			os.Exit(1)
		}
		fmt.Printf("character device %d:%d\n", found.Rdev>>8, found.Rdev&0xFF)
		return
	}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT)
	if len(os.Args) > 1 {
		for _, variable := range os.Environ() {
			fmt.Println("env", variable)
		}
		fmt.Println("ready")
	}
	if len(os.Args) > 1 && os.Args[1] == "env" {
		return
	}
	<-ends
}
