package redisstore

import (
	"strconv"
	"strings"
)

// slots is how many there are in a Cluster.
const slots = 16384

// slotOf is where a key is in a Cluster.
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

// tagOf is the part of key that says where it is. Keys of one tag are together, in a
// Cluster as in a Ring.
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

// setOf is where the IDs of charges of a Key are, beside its hash. It is no name of a
// hash but of a Key that begins with a zero byte.
func setOf(prefix, key string) string {
	hash := prefix + key
	slot := slotOf(hash)
	set := prefix + "\x00" + key
	if tagOf(set) != tagOf(hash) {
		set = prefix + "\x00{" + hash + "}"
	}
	for i := 0; slotOf(set) != slot; i++ { // it has braces, but no tag
		set = prefix + "\x00{" + strconv.Itoa(i) + "}" + hash
	}
	return set
}
