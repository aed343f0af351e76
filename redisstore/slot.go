package redisstore

import (
	"strconv"
	"strings"
	"sync"
)

// slots is the number of hash slots in a Cluster.
const slots = 16384

// slotOf returns the hash slot of a key.
// See https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec, "Hash tags".
func slotOf(key string) int {
	var crc uint16 // CRC-16/XMODEM
	tag := tagOf(key)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % slots)
}

// tagOf returns the part of key that decides which server has it, in a Cluster or a Ring.
func tagOf(key string) string {
	_, rest, found := strings.Cut(key, "{")
	if !found {
		return key
	}
	if end := strings.IndexByte(rest, '}'); end > 0 {
		return rest[:end]
	}
	return key
}

// tags returns a text of two bytes for each slot, which is in it.
var tags = sync.OnceValue(func() *[slots]string {
	all := new([slots]string)
	for i := range 1 << 16 {
		if tag := string([]byte{byte(i >> 8), byte(i)}); !strings.ContainsAny(tag, "{}") {
			all[slotOf(tag)] = tag
		}
	}
	return all
})

// idSetOf returns the name of the sorted set with the IDs of charges of key, on the same server as its
// value. Only the value of a Key that begins with a zero byte could have the same name.
func idSetOf(prefix, key string) string {
	hash := prefix + key
	slot := slotOf(hash)
	set := prefix + "\x00" + key
	if tagOf(set) != tagOf(hash) {
		set = prefix + "\x00{" + hash + "}"
	}
	if slotOf(set) != slot { // braces in the key, but no tag
		set = prefix + "\x00{" + tags()[slot] + "}" + hash
	}
	for i := 0; slotOf(set) != slot; i++ { // braces in the prefix, too
		set = prefix + "\x00{" + strconv.Itoa(i) + "}" + hash
	}
	return set
}
