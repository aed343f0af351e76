//go:build !linux

package redistest

import (
	"fmt"
	"io"
	"net"
)

// reserve does nothing: another process may take the port of a server that was killed.
func reserve(int) (io.Closer, error) { return io.NopCloser(nil), nil }

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
