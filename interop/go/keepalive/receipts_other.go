//go:build !linux

package keepalive

import "net"

// unreadOf gives no question: this kernel cannot tell.
func unreadOf(net.Conn) func() (unreadAnswer, bool) { return nil }
