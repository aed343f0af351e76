package redisstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A luaServer is a redis-server whose scripts take the time from the test, and whose keys do not expire.
type luaServer struct {
	client *redis.Client
	board  *redis.Script
	budget *redis.Script

	mu   sync.Mutex // held during a job
	jobs chan func()
	done chan struct{}
}

func newLuaServer(t *testing.T) *luaServer {
	l := &luaServer{
		client: newClient(t, redistest.Shared(t)),
		board:  byClock(t, redisstore.BoardSource), budget: byClock(t, redisstore.BudgetSource),
		jobs: make(chan func()), done: make(chan struct{}),
	}
	go func() {
		for job := range l.jobs {
			job()
			l.done <- struct{}{}
		}
	}()
	t.Cleanup(func() { close(l.jobs) })
	return l
}

// byClock returns a script that takes the time from its last two arguments.
func byClock(t *testing.T, source string) *redis.Script {
	const clock = "local time = redis.call('TIME')\n"
	require.Equal(t, 1, strings.Count(source, clock))
	source = strings.Replace(source, clock, "local time = {table.remove(ARGV, #ARGV - 1), table.remove(ARGV)}\n", 1)
	end := strings.LastIndex(source, "\nreturn ")
	return redis.NewScript(source[:end] +
		"\nfor _, key in ipairs(KEYS) do redis.call('PERSIST', key) end" + source[end:])
}

// do runs job outside of any bubble, so that the time of a bubble stands still meanwhile.
func (l *luaServer) do(job func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs <- job
	<-l.done
}

// run runs a script at a time in µs since the Unix epoch.
func (l *luaServer) run(script *redis.Script, now int64, keys []string, args ...any) (reply any, err error) {
	args = append(args[:len(args):len(args)], now/1e6, now%1e6)
	l.do(func() { reply, err = script.Run(ctx, l.client, keys, args...).Result() })
	return reply, err
}

// A boardFake is a Redis inside a synctest bubble: a luaServer for the scripts of Boards and Budgets, with
// subscriptions over net.Pipe.
type boardFake struct {
	lua *luaServer // nil if there are no such scripts

	mu              sync.Mutex    // guards what follows
	delay           time.Duration // in each direction
	silent          bool          // it does not answer
	gone            bool          // it cannot be reached
	refusal         error         // the answer to every script and probe, if not nil
	noSubscriptions bool          // it refuses subscriptions
	noMessages      bool          // it publishes nothing
	ahead           time.Duration // of its clock
	longest         int           // the most arguments of a script
	calls           []time.Time
	sent            []sent // by Budgets
	terms           terms  // of the last one
	probes          int    // sent by the breakers of clients
	changed         string // the start and the last change of the Board, as Redis last had them
	subs            map[net.Conn]chan string
	cut             map[any]bool // processes that cannot reach it
}

// message is how what is published to a subscriber begins.
const message = "*3\r\n$7\r\nmessage"

var errGone = errors.New("connection refused")

// bubble runs test in a bubble.
func bubble(t *testing.T, test func(t *testing.T, s *boardFake)) {
	t.Helper()
	lua := newLuaServer(t)
	synctest.Test(t, func(t *testing.T) {
		s := newBoardFake(t)
		s.lua = lua
		test(t, s)
	})
}

func newBoardFake(t *testing.T) *boardFake {
	t.Cleanup(func() { time.Sleep(time.Minute) }) // lets sleeping goroutines end after Close
	return &boardFake{delay: time.Millisecond / 2, subs: make(map[net.Conn]chan string), cut: make(map[any]bool)}
}

// client returns a client of process.
func (s *boardFake) client(t *testing.T, process any) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: s.dial, DialerRetries: 1})
	client.AddHook(boardFakeHook{s, process})
	t.Cleanup(func() {
		s.set(func() { s.silent = false }) // for the same reason as in dial
		time.Sleep(10 * time.Second)
		if b, ok := process.(io.Closer); ok {
			b.Close()
		}
		client.Close()
	})
	return client
}

// board returns a Board of another process.
func (s *boardFake) board(t *testing.T) *redisstore.Board {
	b := new(redisstore.Board)
	b.Client = s.client(t, b)
	return b
}

// set changes the behavior of s.
func (s *boardFake) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// took returns how many scripts were called since its last call.
func (s *boardFake) took() (n int) {
	s.set(func() { n, s.calls = len(s.calls), nil })
	return n
}

// restart closes all connections and forgets everything.
func (s *boardFake) restart() { s.become(nil) }

// saved returns the data of s, for become.
func (s *boardFake) saved() (data map[string]string) {
	data = make(map[string]string)
	s.lua.do(func() {
		for _, key := range []string{hash, changes} {
			data[key] = s.lua.client.Dump(ctx, key).Val()
		}
	})
	return data
}

// become closes all connections and replaces the data, as a failover to an old replica does.
func (s *boardFake) become(data map[string]string) {
	s.set(func() {
		for conn := range s.subs {
			conn.Close()
		}
		if s.lua == nil {
			return
		}
		s.lua.do(func() {
			s.lua.client.FlushAll(ctx)
			for key, value := range data {
				s.lua.client.Restore(ctx, key, 0, value)
			}
			s.changed = fmt.Sprint(s.lua.client.HMGet(ctx, hash, "first", "last").Val())
		})
	})
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

// A boardFakeHook answers the commands of a process from s.
type boardFakeHook struct {
	*boardFake
	process any
}

func (s boardFakeHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		delay, silent, gone := s.state()
		args, refusal := cmd.Args(), error(nil)
		s.set(func() {
			switch len(args) {
			case 3:
				s.probes++
			case 12:
				s.sent = append(s.sent, sent{args[4].(int64), args[5].(int64), args[6].(int64), args[7].(int64)})
				s.terms = terms{args[8].(int64), args[9].(int64), args[10].(int64)}
				fallthrough
			default:
				s.calls, s.longest = append(s.calls, time.Now()), max(s.longest, len(args))
			}
			refusal = s.refusal
			gone = gone || s.cut[s.process]
		})
		switch {
		case gone:
			return errGone
		case silent:
			<-ctx.Done()
			return ctx.Err()
		case len(args) == 3 || refusal != nil:
			return refusal
		}
		time.Sleep(delay)
		reply, err := s.eval(args)
		time.Sleep(delay)
		cmd.(interface{ SetVal(any) }).SetVal(reply)
		return err
	}
}

// eval runs a script, and publishes a message if a Board changed something.
func (s *boardFake) eval(args []any) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().Add(s.ahead).UnixMicro()
	if args[2] == 1 {
		return s.lua.run(s.lua.budget, now, []string{args[3].(string)}, args[4:]...)
	}
	reply, err := s.lua.run(s.lua.board, now, []string{args[3].(string), args[4].(string)}, args[5:]...)
	if err != nil {
		return nil, err
	}
	before := s.changed
	s.changed = fmt.Sprint(reply.([]any)[:2])
	if s.changed != before && !s.noMessages {
		for _, sub := range s.subs {
			sub <- message + "\r\n$1\r\nc\r\n$0\r\n\r\n"
		}
	}
	return reply, nil
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
			// go-redis holds a mutex while it connects, and time stands still in a bubble while a
			// goroutine waits for a mutex, as to close the connection. So answers take no time.
			if strings.HasPrefix(text, message) {
				time.Sleep(delay)
			}
			for ; silent; _, silent, _ = s.state() {
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
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		answer, word := "", strings.ToLower(lines.Text())
		s.set(func() {
			switch {
			case word == "subscribe" && s.noSubscriptions:
				answer = "-NOPERM No permissions to access a channel\r\n"
			case word == "subscribe":
				answer = "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
				s.subs[conn] = sub
			case word == "ping":
				answer = "*2\r\n$4\r\npong\r\n$0\r\n\r\n"
			case word == "hello":
				answer = "-ERR unknown command\r\n"
			case word == "client":
				answer = "+OK\r\n"
			}
			if answer != "" {
				sub <- answer
			}
		})
	}
}
