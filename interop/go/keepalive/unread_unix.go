//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package keepalive

import (
	"net"
	"syscall"
)

// hasUnread asks the kernel for bytes that nobody has read. It says no where it cannot ask.
func hasUnread(conn net.Conn) bool {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	var unread bool
	// Not raw.Read: it waits for who reads the connection, and that one waits for bytes.
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		unread = err == nil && n > 0
	})
	return err == nil && unread
}
