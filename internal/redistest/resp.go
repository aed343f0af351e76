package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	maxBulk      = 1 << 20
	replyTimeout = 10 * time.Second
)

// Do sends one command on a new connection and returns the reply. The elements of an array are
// returned as lines.
func (s *Server) Do(args ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr, replyTimeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(replyTimeout))
	if _, err := io.WriteString(conn, command(args)); err != nil {
		return "", err
	}
	return readReply(bufio.NewReader(conn))
}

func command(args []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

func readReply(r *bufio.Reader) (string, error) {
	line, err := readLine(r)
	if err != nil {
		return "", err
	}
	switch line[0] {
	case '+', ':':
		return line[1:], nil
	case '-':
		return "", errors.New(line[1:])
	case '$':
		return readBulk(r, line)
	case '*':
		return readArray(r, line)
	}
	return "", fmt.Errorf("redistest: cannot read a reply that begins with %q", line)
}

// readArray returns the elements of an array as lines.
func readArray(r *bufio.Reader, line string) (string, error) {
	n, err := strconv.Atoi(line[1:])
	if err != nil {
		return "", fmt.Errorf("redistest: %q is not an array", line)
	}
	var elements []string
	for range n {
		element, err := readReply(r)
		if err != nil {
			return "", err
		}
		elements = append(elements, element)
	}
	return strings.Join(elements, "\n"), nil
}

// readCommand reads an array of bulk strings, the form in which clients send commands.
func readCommand(r *bufio.Reader) ([]string, error) {
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(strings.TrimPrefix(line, "*"))
	if err != nil || line[0] != '*' {
		return nil, fmt.Errorf("redistest: %q is not a command", line)
	}
	var args []string
	for range n {
		line, err := readLine(r)
		if err != nil {
			return nil, err
		}
		arg, err := readBulk(r, line)
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
	return args, nil
}

func readBulk(r *bufio.Reader, line string) (string, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(line, "$"))
	if err != nil || n < 0 || n > maxBulk {
		return "", fmt.Errorf("redistest: %q is not a bulk string", line)
	}
	data := make([]byte, n+len("\r\n"))
	_, err = io.ReadFull(r, data)
	return string(data[:n]), err
}

// readLine returns a line without its end. A line has at least one byte.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", errors.New("redistest: empty line")
	}
	return line, nil
}
