package redisstore

import (
	"sync"
	"time"

	"github.com/heedhttp/heed/quota"
)

// limitsAgain is how long a key is not asked for after Redis did not answer.
const limitsAgain = time.Second

// knownLimits are what Redis said of keys. The zero value is ready to use, by many
// goroutines. All times are monotonic's.
type knownLimits struct {
	mu    sync.Mutex // guards what follows, and what it holds
	keys  map[string]*knownKey
	voids int64 // how many times all was void
}

// A keyLimits is what is known of a key.
type keyLimits struct {
	policies []quota.Policy
	err      error
}

// A knownKey is a key, and what is known of it.
type knownKey struct {
	keyLimits
	voids int64         // when Redis was asked; what follows is void if there were more since
	said  bool          // Redis has answered
	since time.Duration // when it was asked for what it said
	again time.Duration // when it may be asked again after it did not answer
	used  time.Duration // last
	asked *inquiry      // the last one, unless it is answered or void
}

// An inquiry is a question to Redis about a key.
type inquiry struct {
	key    string
	of     *knownKey
	voids  int64         // when it was asked
	done   chan struct{} // closed when there is an answer
	answer keyLimits
}

// look returns what is known of key, and an inquiry if that does not hold until it is
// answered. If there is need of one, ask gets it, in a goroutine of its own.
func (n *knownLimits) look(key string, now, ttl time.Duration, most int, ask func(*inquiry)) (known keyLimits, asked *inquiry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.keyLocked(key, most)
	k.used = now
	holds, due := n.judgeLocked(k, now, ttl)
	if due && (k.asked == nil || k.asked.voids != n.voids) {
		k.asked = &inquiry{key: key, of: k, voids: n.voids, done: make(chan struct{})}
		go ask(k.asked)
	}
	if holds {
		return k.keyLimits, nil
	}
	return k.keyLimits, k.asked
}

// judgeLocked reports whether what is known of k holds, and whether Redis is to be asked.
func (n *knownLimits) judgeLocked(k *knownKey, now, ttl time.Duration) (holds, due bool) {
	current := k.voids == n.voids
	if current && now < k.again {
		return true, false
	}
	holds = current && k.said && now-k.since < ttl
	return holds, !holds || now-k.since >= ttl/2
}

// learn takes note of what Redis said to q, which was asked at a time. Limits that make no
// sense leave those in force that did.
func (n *knownLimits) learn(q *inquiry, said keyLimits, at time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if said.err != nil {
		said.policies = q.of.policies
	}
	if q.isCurrentLocked(n) {
		k := q.of
		k.keyLimits, k.said, k.voids, k.since, k.again = said, true, q.voids, at, 0
	}
	q.endLocked(said)
}

// fail takes note that Redis did not answer q, and is not to be asked again until later.
func (n *knownLimits) fail(q *inquiry, err error, again time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if k := q.of; q.isCurrentLocked(n) {
		k.said = k.said && k.voids == q.voids
		k.err, k.voids, k.again = err, q.voids, again
	}
	q.endLocked(keyLimits{q.of.policies, err})
}

// isCurrentLocked reports whether nothing has made q void.
func (q *inquiry) isCurrentLocked(n *knownLimits) bool { return q.of.asked == q && q.voids == n.voids }

func (q *inquiry) endLocked(answer keyLimits) {
	if q.of.asked == q {
		q.of.asked = nil
	}
	q.answer = answer
	close(q.done)
}

// void has Redis asked when key is next looked up, or any key if it is empty.
func (n *knownLimits) void(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if key == "" {
		n.voids++
	} else if k := n.keys[key]; k != nil {
		k.said, k.again, k.asked = false, 0, nil
	}
}

// keyLocked returns key's entry. If there is to be another one, and there are so many as
// may be, the longest unused of a few has to go.
func (n *knownLimits) keyLocked(key string, most int) *knownKey {
	if k := n.keys[key]; k != nil {
		return k
	}
	if n.keys == nil {
		n.keys = make(map[string]*knownKey)
	}
	if len(n.keys) >= most {
		n.forgetLocked()
	}
	k := new(knownKey)
	n.keys[key] = k
	return k
}

func (n *knownLimits) forgetLocked() {
	const few = 8
	var oldest *knownKey
	var name string
	tried := 0
	for key, k := range n.keys { // begins anywhere
		if oldest == nil || k.used < oldest.used {
			oldest, name = k, key
		}
		if tried++; tried == few {
			break
		}
	}
	delete(n.keys, name)
}
