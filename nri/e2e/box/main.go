// Command box is the only program of the image. As it is it waits for a signal, which makes it the pause
// process of a pod; "box show" prints its environment before, and "box env" only that.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
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
