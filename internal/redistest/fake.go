package redistest

import (
	"bufio"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Replies for a Fake.
const (
	WrongType = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
	Loading   = "-LOADING Redis is loading the dataset in memory\r\n"
	ReadOnly  = "-READONLY You can't write against a read only replica.\r\n"
	NoScript  = "-NOSCRIPT No matching script. Please use EVAL.\r\n"
	Garbage   = "!?\x00\xff\r\n\r\n*-7\r\n"
	Silence   = ""         // the command is read and never answered
	HangUp    = "\x00hang" // the command is read and the connection closed
)

// A Fake is a server that says what it was told to say.
type Fake struct {
	Addr string // host:port

	mu       sync.Mutex // guards what follows
	replies  []string
	commands [][]string
	conns    []net.Conn
}

// NewFake starts a Fake that answers each command but a client's introduction
// with the next of replies, in the protocol's bytes, and from then on with the
// last. It ends with the test.
func NewFake(t testing.TB, replies ...string) *Fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	if len(replies) == 0 {
		replies = []string{Silence}
	}
	f := &Fake{Addr: l.Addr().String(), replies: slices.Clone(replies)}
	var serving sync.WaitGroup
	serving.Go(func() { f.accept(l, &serving) })
	t.Cleanup(func() {
		l.Close()
		f.hangUp()
		serving.Wait()
	})
	return f
}

// Commands returns what the Fake was sent, a client's introduction left out.
func (f *Fake) Commands() [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.commands)
}

func (f *Fake) accept(l net.Listener, serving *sync.WaitGroup) {
	for {
		conn, err := l.Accept()
		if err != nil {
			f.hangUp() // whom Cleanup was too early to meet
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, conn)
		f.mu.Unlock()
		serving.Go(func() { f.serve(conn) })
	}
}

func (f *Fake) hangUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		conn.Close()
	}
}

func (f *Fake) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		reply := f.reply(args)
		if reply == HangUp {
			return
		}
		io.WriteString(conn, reply)
	}
}

func (f *Fake) reply(args []string) string {
	switch strings.ToUpper(args[0]) {
	case "HELLO": // as a server before Redis 6
		return "-ERR unknown command 'HELLO'\r\n"
	case "CLIENT":
		return "+OK\r\n"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commands = append(f.commands, args)
	next := f.replies[0]
	if len(f.replies) > 1 {
		f.replies = f.replies[1:]
	}
	return next
}
