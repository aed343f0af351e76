package redistest

import (
	"bufio"
	"context"
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
	Addr string // host:port; empty if it has none

	serving sync.WaitGroup

	mu       sync.Mutex // guards what follows
	replies  []string
	commands [][]string
	conns    []net.Conn
	closed   bool
}

// NewFake starts a Fake that answers each command with the next of replies, in the
// protocol's bytes, and from then on with the last: but a client's introduction, and the
// script "return 1", which finds out whether there is a server, as one would, unless the
// next reply is Silence or HangUp. It ends with the test.
func NewFake(t testing.TB, replies ...string) *Fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	f := newFake(replies)
	f.Addr = l.Addr().String()
	f.serving.Go(func() { f.accept(l) })
	t.Cleanup(func() {
		l.Close()
		f.end()
	})
	return f
}

// NewMemoryFake is NewFake without a network, for a bubble of testing/synctest: a client
// reaches it by Dial.
func NewMemoryFake(t testing.TB, replies ...string) *Fake {
	t.Helper()
	f := newFake(replies)
	t.Cleanup(f.end)
	return f
}

func newFake(replies []string) *Fake {
	if len(replies) == 0 {
		replies = []string{Silence}
	}
	return &Fake{replies: slices.Clone(replies)}
}

// Dial connects to the Fake in memory, whatever the address. It is a client's Dialer.
func (f *Fake) Dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	if !f.meet(here) {
		return nil, net.ErrClosed
	}
	return there, nil
}

// Say has the Fake answer each command with the next of replies from now on.
func (f *Fake) Say(replies ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replies = slices.Clone(replies)
}

// Commands returns what the Fake was sent, a client's introduction and the script
// "return 1" left out.
func (f *Fake) Commands() [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.commands)
}

func (f *Fake) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		f.meet(conn)
	}
}

// meet serves conn, unless the Fake has ended.
func (f *Fake) meet(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		conn.Close()
		return false
	}
	f.conns = append(f.conns, conn)
	f.serving.Go(func() { f.serve(conn) })
	return true
}

func (f *Fake) end() {
	f.mu.Lock()
	f.closed = true
	for _, conn := range f.conns {
		conn.Close()
	}
	f.mu.Unlock()
	f.serving.Wait()
}

// serve reads commands and has them answered. It reads on meanwhile: a client may send
// more before it reads.
func (f *Fake) serve(conn net.Conn) {
	replies := make(chan string, 1000)
	f.serving.Go(func() {
		defer conn.Close()
		for reply := range replies {
			io.WriteString(conn, reply)
		}
	})
	defer close(replies)
	for r := bufio.NewReader(conn); ; {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		switch reply := f.reply(args); reply {
		case HangUp:
			return
		case Silence: // a pipe waits until somebody reads nothing
		default:
			replies <- reply
		}
	}
}

const shaOfReturn1 = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"

func (f *Fake) reply(args []string) string {
	switch strings.ToUpper(args[0]) {
	case "HELLO": // as a server before Redis 6
		return "-ERR unknown command 'HELLO'\r\n"
	case "CLIENT":
		return "+OK\r\n"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.replies[0]
	if len(args) > 1 && (args[1] == "return 1" || args[1] == shaOfReturn1) {
		if next != Silence && next != HangUp {
			next = ":1\r\n"
		}
		return next
	}
	f.commands = append(f.commands, args)
	if len(f.replies) > 1 {
		f.replies = f.replies[1:]
	}
	return next
}
