package redisstore

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A server is one that answers for itself, and so has a breaker and a line of its own.
type server struct {
	breaker
	line line[request]
}

// servers are as many as ever were masters.
type servers struct {
	all atomic.Pointer[map[string]*server] // by address; never changed, but replaced
	mu  sync.Mutex                         // held to replace it
}

// get returns the server of that address, which is created if there was none.
func (s *servers) get(address string, create func() *server) *server {
	if all := s.all.Load(); all != nil && (*all)[address] != nil {
		return (*all)[address]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	more := map[string]*server{}
	if all := s.all.Load(); all != nil {
		maps.Copy(more, *all)
	}
	if more[address] == nil {
		more[address] = create()
	}
	s.all.Store(&more)
	return more[address]
}

// trust lets calls pass to all servers: one of them was heard of, and the others may be
// back as well. One that is not costs a Timeout.
func (s *servers) trust() {
	if all := s.all.Load(); all != nil {
		for _, server := range *all {
			server.trust()
		}
	}
}

// serverFor returns the server of a Key.
func (s *Store) serverFor(key string) *server {
	s.connections.watch(s.Client)
	if _, single := s.Client.(*redis.Client); single {
		return s.serverAt("")
	}
	return s.serverAt(addressOf(s.Client, s.prefix()+key))
}

func (s *Store) serverAt(address string) *server {
	return s.servers.get(address, func() *server {
		of := new(server)
		of.line.timeout, of.line.send = s.timeout(), s.carry
		_, of.line.halves = s.Client.(*redis.Client)
		of.line.silent = func(batch []*call[request], err error) error {
			lookAgain(s.Client)
			s.findReason()
			return of.open(err, s.probe(s.keysOf(batch[0])))
		}
		return of
	})
}

// breaker returns that of the server of keys, which are as Redis has them.
func (s *Store) breaker(keys []string) *breaker {
	s.connections.watch(s.Client)
	return &s.serverAt(addressOf(s.Client, keys[0])).breaker
}

// probe returns a call to the server of keys that changes nothing.
func (s *Store) probe(keys []string) func() error {
	return func() error {
		_, err := s.calls.run(context.Background(), s.Client, s.timeout(), probeScript, keys[:1])
		return err
	}
}

// addressOf returns the address of key's server, or "" if client has but one, or
// does not know yet. It asks nobody.
func addressOf(client redis.UniversalClient, key string) string {
	if isNil(client) {
		return ""
	}
	var server *redis.Client
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		server, err = c.MasterForKey(over, key)
	case *redis.Ring:
		server, err = c.GetShardClientForKey(key)
	}
	if server == nil || err != nil {
		return ""
	}
	return server.Options().Addr
}

// over keeps a ClusterClient that does not know its masters from asking for them.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
