package quota

import (
	"math/bits"
	"math/rand/v2"
)

// A hash stands for what is counted as one: a Key, the Name of a Limit, and whether
// it is a DryRun; or for an ID of these. It is of 64 bits, of which the lowest
// choose the shard and come from the Key alone.
//
// It is made with secrets of the process, so nobody outside can aim at another's.
// By chance some two of n have the same with a probability of n²/2^65.
type hash uint64

// secrets are what a digest begins with, and what its parts are mixed with.
var secrets = struct{ key, name, dryRun, id, left, size uint64 }{
	rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64(),
}

// digest returns 64 bits that depend on all of s. It is what the maps of Go use
// where there are no instructions for AES, and for the short strings that keys are
// it is faster than what they use where there are: it need not be called.
func digest(s string, secret uint64) uint64 {
	size := uint64(len(s))
	for ; len(s) > 16; s = s[16:] {
		secret = mix(load8(s)^secrets.left, load8(s[8:])^secret)
	}
	var left, right uint64
	switch n := len(s); {
	case n >= 8:
		left, right = load8(s), load8(s[n-8:])
	case n >= 4:
		left, right = load4(s), load4(s[n-4:])
	case n > 0:
		left = uint64(s[0])<<16 | uint64(s[n/2])<<8 | uint64(s[n-1])
	}
	return mix(mix(left^secrets.left, right^secret), size^secrets.size)
}

// mix returns a product of which every bit depends on all of a and b.
func mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

func load8(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func load4(s string) uint64 {
	_ = s[3]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}

// keyHash returns what all hashes of a Key are made from.
func keyHash(key string) hash { return hash(digest(key, secrets.key)) }

// with returns the hash of something of the Key of h.
func (h hash) with(digest uint64) hash { return h ^ hash(digest&^(maxShards-1)) }

// counted returns the hash of what the Key of h is counted under.
func (h hash) counted(name string, dryRun bool) hash {
	if dryRun {
		return h.with(digest(name, secrets.dryRun))
	}
	return h.with(digest(name, secrets.name))
}

// named returns the hash of an ID of h.
func (h hash) named(id string) hash { return h.with(digest(id, secrets.id)) }

// hash returns that of what c is counted as.
func (c *Charge) hash() hash { return c.hashOf(keyHash(c.Key)) }

// hashOf is hash, if that of c's Key is known.
func (c *Charge) hashOf(key hash) hash {
	if c.DryRun {
		return key ^ c.Limit.packed.dryRun
	}
	return key ^ c.Limit.packed.name
}
