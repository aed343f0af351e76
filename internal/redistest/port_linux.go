package redistest

import (
	"io"
	"os"
	"syscall"
)

// reserve keeps a port until its result is closed. A server that was given this port can listen on it, but
// the kernel never chooses it when another process asks for any free port. While no server listens,
// connections are refused.
func reserve(port int) (io.Closer, error) { return bind(port, 1) }

// free reports whether nobody uses or has reserved port.
func free(port int) bool {
	socket, err := bind(port, 0)
	if err != nil {
		return false
	}
	socket.Close()
	return true
}

// bind binds a socket that does not listen. Several sockets can have one port if all reuse it.
func bind(port, reuse int) (io.Closer, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	socket := os.NewFile(uintptr(fd), "port")
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, reuse)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		socket.Close()
		return nil, err
	}
	return socket, nil
}
