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
	Silence   = ""         // read the command and never answer
	HangUp    = "\x00hang" // read the command and close the connection
)

// A Fake is a server with scripted replies.
type Fake struct {
	Addr string // host:port; empty for NewMemoryFake

	serving sync.WaitGroup

	mu       sync.Mutex // guards what follows
	replies  []string
	commands [][]string
	conns    []net.Conn
	closed   bool
}

// NewFake starts a Fake that answers each command with the next of replies, in the protocol's bytes;
// the last reply repeats. Two things are answered as by a real server: a client's handshake, and the
// script "return 1" with which clients probe, unless the next reply is Silence or HangUp. The Fake ends
// with the test.
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

// NewMemoryFake is NewFake without a network, for testing/synctest. A client connects with Dial.
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

// Dial connects to the Fake in memory, whatever the address. Use it as a client's Dialer.
func (f *Fake) Dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	if !f.startServing(here) {
		return nil, net.ErrClosed
	}
	return there, nil
}

// Say replaces the replies that are left.
func (f *Fake) Say(replies ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replies = slices.Clone(replies)
}

// Commands returns the commands that the Fake received, without handshakes and the script "return 1".
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
		f.startServing(conn)
	}
}

// startServing serves conn, unless the Fake has ended.
func (f *Fake) startServing(conn net.Conn) bool {
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

// serve reads commands and writes replies. It reads while it writes, because a client may send more
// before it reads.
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
		case Silence: // writing nothing to a pipe would block until somebody reads
		default:
			replies <- reply
		}
	}
}

const shaOfReturn1 = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"

func (f *Fake) reply(args []string) string {
	switch strings.ToUpper(args[0]) {
	case "HELLO": // as Redis before version 6
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
