package keepalive

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unreadOf gives the question what the process at the other end has not read, and nil where the kernel
// cannot tell: for TCP it knows only what the other kernel has not acknowledged.
func unreadOf(conn net.Conn) func() (unreadAnswer, bool) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	var isUnixStream bool
	err = raw.Control(func(fd uintptr) {
		domain, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err != nil || domain != unix.AF_UNIX {
			return
		}
		kind, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TYPE)
		isUnixStream = err == nil && kind == unix.SOCK_STREAM
	})
	if err != nil || !isUnixStream {
		return nil
	}
	return func() (unreadAnswer, bool) {
		var answer unreadAnswer
		var asked error
		err := raw.Control(func(fd uintptr) {
			// SIOCOUTQ, by the name that all releases of the module have.
			answer.held, asked = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ)
			if asked != nil {
				return
			}
			// After that, not before: a peer that closes leaves nothing unread, and its end is visible
			// earlier than that. Not by a look at the bytes, which would take away the socket's error
			// from who reads.
			look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
			// It does not wait, and is interrupted all the same: by the signals of Go's own scheduler.
			for asked = unix.EINTR; asked == unix.EINTR; {
				_, asked = unix.Poll(look, 0)
			}
			answer.coming = look[0].Revents&unix.POLLIN != 0
			answer.ended = look[0].Revents&^unix.POLLIN != 0
		})
		return answer, err == nil && asked == nil
	}
}
