// Package redisstore keeps in Redis what several processes share: the counts of
// package quota in a [Store], a retry budget in a [Budget], the cool-downs of their
// servers on a [Board], the [Limits] of single keys, and a [Document] of rules.
//
// # Scripts
//
// Every decision is made by one Lua script, which makes all that one round trip brings.
// A script reads the clock once, by TIME, so that it is Redis' clock which counts and
// not those of the processes; works everything out in integers that a Lua number holds
// exactly, by the arithmetic that package quota describes; and writes last, if at all,
// and only if Redis' ACL permits all of it, so that a script which fails has written
// nothing. (Redis 6.2 cannot be asked what it permits. There, see to it that who may
// HSET may PEXPIRE as well. Nor should a selector of an ACL permit one of them for some
// keys of a Store only: most scripts ask about one key.) What it writes expires.
//
// Scripts are called by their digest, and sent in full to a server that does not
// know them. One that was refused did nothing; if it was for several calls, each of
// them is sent once more by itself, since it may be the fault of one. Apart from that
// nothing is ever sent twice: go-redis would by default send a script up to four times
// when no answer comes, and each might be counted.
//
// # When Redis is lost
//
// A call has a Timeout of its own, 50 ms by default, which holds whatever the
// timeouts of the client are: a call that takes longer is left behind. When one
// was, the following ones fail at once, and Redis is asked in the background
// whether it is back. What to do meanwhile is for the caller to say; a Budget and a
// Board decide on their own.
//
// Give Redis memory enough and an eviction policy of noeviction or volatile-ttl:
// a bucket that is evicted is whole again.
package redisstore
