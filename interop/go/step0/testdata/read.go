package multiplex

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// IsRead says whether the process at the other end reads the trunk, as far as the kernel tells: all that
// was written is read, and if that was so before, a frame that its reader drops as well. False also where
// the kernel does not tell.
func (m *mux) IsRead(within time.Duration) bool {
	end := time.Now().Add(within)
	for asked := false; time.Now().Before(end); time.Sleep(time.Millisecond) {
		unread, err := m.unread()
		if err != nil {
			return false
		}
		if unread > 1 { // It is one too high now and then while the peer reads.
			continue
		}
		if asked {
			return true
		}
		if m.writeLock.TryLock() { // Somebody who writes asks in our place.
			// A header with the reserved ID and no payload. Nothing waits, so there is room for it.
			_, err = m.trunk.Write(make([]byte, headerLen))
			m.writeLock.Unlock()
			if err != nil {
				return false
			}
		}
		asked = true
	}
	return false
}

// unread gives what the peer's process has not read of what was written to a unix stream socket, counted
// by the kernel in buffers.
func (m *mux) unread() (unread int, err error) {
	trunk, ok := m.trunk.(*net.UnixConn)
	if !ok {
		return 0, syscall.ENOTSUP
	}
	raw, err := trunk.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) { unread, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	if failed != nil {
		err = failed
	}
	return unread, err
}
