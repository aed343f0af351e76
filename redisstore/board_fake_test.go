package redisstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
)

// A boardFake is a Redis for Boards inside a synctest bubble: a boardModel, with subscriptions over
// net.Pipe.
type boardFake struct {
	mu              sync.Mutex // guards what follows
	model           boardModel
	delay           time.Duration // in each direction
	silent          bool          // it does not answer
	gone            bool          // it cannot be reached
	noSubscriptions bool          // it refuses subscriptions
	noMessages      bool          // it publishes nothing
	calls           []time.Time
	probes          int // sent by the breakers of clients
	subs            map[net.Conn]chan string
	cut             map[*redisstore.Board]bool // Boards that cannot reach it
}

func newBoardFake(t *testing.T) *boardFake {
	t.Cleanup(func() { time.Sleep(time.Minute) }) // lets sleeping goroutines end after Close
	return &boardFake{
		delay: time.Millisecond / 2, subs: make(map[net.Conn]chan string), cut: make(map[*redisstore.Board]bool),
	}
}

// board returns a Board of another process.
func (s *boardFake) board(t *testing.T) *redisstore.Board {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: s.dial, DialerRetries: 1})
	b := &redisstore.Board{Client: client}
	client.AddHook(boardFakeHook{s, b})
	t.Cleanup(func() {
		// go-redis holds a mutex while it connects, and time stands still in a bubble
		// while a goroutine waits for a mutex.
		s.set(func() { s.silent = false })
		time.Sleep(10 * time.Second)
		b.Close()
		client.Close()
	})
	return b
}

// set changes the behavior of s.
func (s *boardFake) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// restart closes all connections and forgets all cool-downs.
func (s *boardFake) restart() {
	s.set(func() {
		s.model = boardModel{}
		for conn := range s.subs {
			conn.Close()
		}
	})
}

// took returns how many scripts were called since its last call.
func (s *boardFake) took() (n int) {
	s.set(func() { n, s.calls = len(s.calls), nil })
	return n
}

// restore closes all connections and goes back to an earlier state.
func (s *boardFake) restore(before boardModel) {
	s.restart()
	s.set(func() { s.model = before })
}

func (s *boardFake) state() (delay time.Duration, silent, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delay, s.silent, s.gone
}

func (s *boardFake) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *boardFake) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *boardFake) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return boardFakeHook{s, nil}.ProcessHook(next)
}

// A boardFakeHook answers b's commands from s.
type boardFakeHook struct {
	*boardFake
	b *redisstore.Board
}

func (s boardFakeHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		delay, silent, gone := s.state()
		isProbe := len(cmd.Args()) == 3
		s.set(func() {
			if isProbe {
				s.probes++
			} else {
				s.calls = append(s.calls, time.Now())
			}
			gone = gone || s.cut[s.b]
		})
		switch {
		case gone:
			return errGone
		case silent:
			<-ctx.Done()
			return ctx.Err()
		}
		if isProbe {
			return nil
		}
		time.Sleep(delay)
		reply := s.eval(cmd.Args()[5:])
		time.Sleep(delay)
		cmd.(interface{ SetVal(any) }).SetVal(reply)
		return nil
	}
}

var errGone = errors.New("connection refused")

func (s *boardFake) eval(args []any) []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply, changed := s.model.run(time.Now().UnixMicro(), args)
	if changed && !s.noMessages {
		for _, sub := range s.subs {
			sub <- "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n"
		}
	}
	return reply
}

// dial connects subscriptions; the hook answers scripts.
func (s *boardFake) dial(context.Context, string, string) (net.Conn, error) {
	if _, _, gone := s.state(); gone {
		return nil, errGone
	}
	here, there := net.Pipe()
	sub := make(chan string, 10_000)
	go s.converse(here, sub)
	go func() {
		for text := range sub {
			delay, silent, _ := s.state()
			for time.Sleep(delay); silent; _, silent, _ = s.state() {
				time.Sleep(time.Millisecond)
			}
			io.WriteString(here, text)
		}
	}()
	return there, nil
}

// converse answers the commands of a subscriber.
func (s *boardFake) converse(conn net.Conn, sub chan string) {
	defer conn.Close()
	defer s.set(func() { delete(s.subs, conn); close(sub) })
	r := bufio.NewReader(conn)
	for {
		words, err := readWords(r)
		if err != nil {
			return
		}
		var answer string
		var refuses bool
		s.set(func() { refuses = s.noSubscriptions })
		switch word := strings.ToLower(words[0]); {
		case word == "subscribe" && refuses:
			answer = "-NOPERM No permissions to access a channel\r\n"
		case word == "subscribe":
			answer = "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
			s.set(func() { s.subs[conn] = sub })
		case word == "ping":
			answer = "*2\r\n$4\r\npong\r\n$0\r\n\r\n"
		case word == "hello":
			answer = "-ERR unknown command\r\n"
		default:
			answer = "+OK\r\n"
		}
		s.set(func() { sub <- answer })
	}
}

// readWords reads an array of bulk strings.
func readWords(r *bufio.Reader) (words []string, err error) {
	count := func(prefix byte) int {
		line, lineErr := r.ReadString('\n')
		n, convErr := strconv.Atoi(strings.Trim(line, string(prefix)+"\r\n"))
		err = errors.Join(err, lineErr, convErr)
		return n
	}
	for n := count('*'); n > 0 && err == nil; n-- {
		word := make([]byte, count('$')+2)
		if err == nil {
			_, err = io.ReadFull(r, word)
		}
		words = append(words, strings.TrimSpace(string(word)))
	}
	if len(words) == 0 && err == nil {
		err = fmt.Errorf("no command")
	}
	return words, err
}
