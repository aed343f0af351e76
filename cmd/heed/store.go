package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
)

const (
	patience     = 5 * time.Second // timeout for Redis
	quotaPrefix  = "heed:quota:2:"
	maxSimilar   = 5
	defaultLines = 50
)

// A storeCommand is a command with a Store.
type storeCommand struct {
	*session
	store *redisstore.Store
	rules *ruleNumbers // nil without -rules
}

// inStore calls do with the Store at REDIS_URL, and closes it.
func (s *session) inStore(prefix, rules string, do func(ctx context.Context, c *storeCommand) error) error {
	store, err := redisstore.FromEnv()
	if err != nil {
		return err
	}
	defer store.Client.Close()
	store.Prefix, store.Timeout = cmp.Or(prefix, quotaPrefix), patience
	c := &storeCommand{session: s, store: store}
	if rules != "" {
		if c.rules, err = readNumbers(rules, store.Client); err != nil {
			return err
		}
		defer c.rules.Close()
	}
	return do(context.Background(), c)
}

const (
	prefixUse = "prefix of keys in Redis (default heed:quota:2:)"
	rulesUse  = "the rule `file` in effect, which has the limits"
)

// list prints the counts of all keys.
func (s *session) list(args []string) error {
	f := s.flags("store list")
	prefix, rules := f.String("prefix", "", prefixUse), f.String("rules", "", rulesUse)
	denied := f.Bool("denied", false, "only denied keys")
	n := f.Int("n", defaultLines, "the most lines to print")
	if _, err := s.parse(f, args, 0, 0); err != nil {
		return err
	}
	if *denied && *rules == "" {
		fmt.Fprintln(s.err, "heed store list: -denied needs -rules FILE, because Redis does not have the limits")
		return errUsage
	}
	return s.inStore(*prefix, *rules, func(ctx context.Context, c *storeCommand) error {
		return c.list(ctx, max(0, *n), *denied)
	})
}

func (c *storeCommand) list(ctx context.Context, most int, deniedOnly bool) error {
	var first []row // the first rows in order
	rows, keys, denied, unknown := 0, 0, 0, 0
	for k, err := range c.store.Keys(ctx) {
		if err != nil {
			return c.keysFault(err)
		}
		keys++
		keyDenied := false
		for _, r := range c.rowsOf(ctx, k) {
			keyDenied = keyDenied || r.denied
			if deniedOnly && !r.denied {
				continue
			}
			rows++
			if c.rules != nil && r.state == unknownLimit {
				unknown++
			}
			at, _ := slices.BinarySearchFunc(first, r, compareRows)
			if at < most {
				first = slices.Insert(first[:min(len(first), max(at, most-1))], at, r)
			}
		}
		if keyDenied {
			denied++
		}
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	if len(first) > 0 {
		fmt.Fprintln(w, "KEY\tLIMIT\tUSED\tSTATE\tUNTIL")
	}
	printed := make(map[[2]string]bool) // a SCAN may find a key twice
	for _, r := range first {
		which := [2]string{r.key, r.limit}
		if printed[which] {
			continue
		}
		printed[which] = true
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", printable(r.key), r.limit, r.used, r.state, r.until)
	}
	w.Flush()
	if len(first) < rows {
		fmt.Fprintf(c.out, "%d more lines: use -n %d to print all.\n", rows-len(first), rows)
	}
	switch {
	case c.rules == nil:
		const hint = "Use -rules FILE to see which are denied, and until when."
		fmt.Fprintf(c.out, "%s. %s\n", count(keys, "key"), hint)
	default:
		fmt.Fprintf(c.out, "%s, %d of them denied.\n", count(keys, "key"), denied)
	}
	if unknown > 0 {
		fmt.Fprintf(c.out, "? marks limits that the file does not have.\n")
	}
	return nil
}

// keysFault adds advice to an error of Keys.
func (c *storeCommand) keysFault(err error) error {
	if redis.HasErrorPrefix(err, "NOPERM") {
		return fmt.Errorf("%w: use a Redis user that may SCAN", err)
	}
	return err
}

// A row is a line about one count.
type row struct {
	key, limit, used, state, until string

	denied bool
	wait   time.Duration // until it is admitted, full, or expired
}

// States of a row.
const (
	unknownLimit = "?"
	admitted     = "admitted"
	isDenied     = "denied"
	isBlocked    = "blocked"   // by a penalty
	wouldBe      = "would be " // in a dry run
)

// compareRows orders denied keys first, those with the longest wait before others.
func compareRows(a, b row) int {
	first := func(r row) int {
		if r.denied {
			return 0
		}
		return 1
	}
	return cmp.Or(first(a)-first(b), cmp.Compare(b.wait, a.wait),
		strings.Compare(a.key, b.key), strings.Compare(a.limit, b.limit))
}

// rowsOf returns the rows of one key. A count that is full again has none.
func (c *storeCommand) rowsOf(ctx context.Context, k redisstore.KeyState) (rows []row) {
	for _, state := range k.States {
		found := c.rules.of(ctx, k.Key, state)
		if len(found) == 0 {
			rows = append(rows, row{
				key: k.Key, limit: state.Name, used: owedUnits(state), state: unknownLimit,
				until: "expires by " + c.clock(k.TTL), wait: k.TTL,
			})
		}
		for _, n := range found {
			if n.hidden {
				continue
			}
			r := n.row(state, k.At.UnixMicro())
			if r.wait == 0 {
				continue
			}
			r.key, r.until = k.Key, c.clock(r.wait)
			if r.state == admitted {
				r.until = "full at " + r.until
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// clock formats the end of a wait by the clock of this machine.
func (s *session) clock(wait time.Duration) string {
	at, layout := s.now.Add(wait+time.Second-1).Truncate(time.Second), time.TimeOnly
	if wait > 12*time.Hour {
		layout = time.DateTime
	}
	return fmt.Sprintf("%s (%s)", at.Format(layout), roughly(wait))
}

// roughly formats d in its two largest units.
func roughly(d time.Duration) string {
	switch d = (d + time.Second - 1).Truncate(time.Second); {
	case d >= 24*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d/time.Hour%24)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d/time.Minute%60)
	default:
		return d.String()
	}
}

// printable returns a key, quoted if it has characters that control a terminal.
func printable(key string) string {
	if quoted := strconv.Quote(key); quoted != `"`+key+`"` {
		return quoted
	}
	return key
}

// show prints the counts of a key.
func (s *session) show(args []string) error {
	f := s.flags("store show")
	prefix, rules := f.String("prefix", "", prefixUse), f.String("rules", "", rulesUse)
	args, err := s.parse(f, args, 1, 1)
	if err != nil {
		return err
	}
	return s.inStore(*prefix, *rules, func(ctx context.Context, c *storeCommand) error {
		k, err := c.find(ctx, args[0])
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s\n", printable(k.Key))
		c.print(ctx, k, "   ")
		return c.printRest(k)
	})
}

// print prints the counts of a key, each after indent.
func (c *storeCommand) print(ctx context.Context, k *keyFound, indent string) {
	for _, state := range k.States {
		found := c.rules.of(ctx, k.Key, state)
		if len(found) == 0 {
			fmt.Fprintln(c.out, indent+c.owed(state))
		}
		for _, n := range found {
			if n.hidden {
				continue
			}
			if text := c.standing(n, state, k.At); text != "" {
				fmt.Fprintln(c.out, indent+text)
			}
		}
	}
}

// printRest prints what all counts of a key have in common.
func (c *storeCommand) printRest(k *keyFound) error {
	if c.rules == nil && len(k.States) > 0 {
		fmt.Fprintf(c.out, "   full by %s at the latest; use -rules FILE to see whether it is denied\n", c.clock(k.TTL))
	}
	if k.unread > 0 {
		return fmt.Errorf("heed: %s cannot be read, and has no effect", count(k.unread, "count"))
	}
	return nil
}

// standing describes a key's count of a limit. It returns "" for a penalty that is over.
func (c *storeCommand) standing(n numbers, state quota.State, at time.Time) string {
	r := n.row(state, at.UnixMicro())
	text := fmt.Sprintf("%q: ", r.limit)
	if !n.blocks {
		text += strings.Replace(r.used, "/", " of ", 1) + " used, "
	}
	switch {
	case n.blocks && r.wait == 0:
		return ""
	case r.wait == 0:
		return text + "full"
	case r.state == admitted:
		return text + "full at " + c.clock(r.wait)
	default:
		return text + r.state + " until " + c.clock(r.wait)
	}
}

// reset resets the counts of a key.
func (s *session) reset(args []string) error {
	f := s.flags("store reset")
	prefix := f.String("prefix", "", prefixUse)
	args, err := s.parse(f, args, 1, 1)
	if err != nil {
		return err
	}
	return s.inStore(*prefix, "", func(ctx context.Context, c *storeCommand) error {
		k, err := c.find(ctx, args[0])
		if err != nil {
			return err
		}
		c.print(ctx, k, "")
		if err := c.store.Reset(ctx, k.Key); err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s is reset. Every process sees this within a second.\n", printable(k.Key))
		return nil
	})
}

// A keyFound is the counts of a key in Redis.
type keyFound struct {
	redisstore.KeyState
	unread int // corrupt counts
}

// find returns the counts of a key in any of its spellings. If there are none, it prints this and
// returns errWrong.
func (c *storeCommand) find(ctx context.Context, text string) (found *keyFound, err error) {
	for _, key := range spellings(text, c.store.Prefix) {
		k, err := c.inspect(ctx, key)
		switch {
		case err != nil:
			return nil, err
		case k == nil:
		case found == nil:
			found = k
		default:
			fmt.Fprintf(c.err, "heed: also found %s\n", printable(k.Key))
		}
	}
	if found != nil {
		return found, nil
	}
	fmt.Fprintln(c.err, "heed: no such key: it has used nothing, or has another name")
	for _, key := range c.similar(ctx, text) {
		fmt.Fprintf(c.err, "did you mean %s\n", printable(key))
	}
	fmt.Fprintln(c.err, "headers, cookies and form values are hashed: heed rules key header:NAME prints the hash of one")
	return nil, errWrong
}

// inspect returns the counts of a key, or nil.
func (c *storeCommand) inspect(ctx context.Context, key string) (*keyFound, error) {
	unread := c.store.Corrupt()
	states, err := c.store.Inspect(ctx, key)
	if err != nil {
		return nil, err
	}
	k := &keyFound{redisstore.KeyState{Key: key, States: states}, int(c.store.Corrupt() - unread)}
	if len(states) == 0 && k.unread == 0 {
		return nil, nil
	}
	if k.At, err = c.store.Client.Time(ctx).Result(); err == nil {
		k.TTL, err = c.store.Client.PTTL(ctx, c.store.Prefix+key).Result()
	}
	if err != nil {
		return nil, fmt.Errorf("heed: %w", err)
	}
	return k, nil
}

// spellings returns the keys that text may mean: a key, its name in Redis, the value of a rule's
// key, or an address.
func spellings(text, prefix string) []string {
	text = strings.TrimPrefix(text, prefix)
	bare := strings.TrimPrefix(strings.TrimPrefix(text, "key:"), "default:")
	all := []string{text, "key:" + bare, "default:" + bare, bare}
	if addr, err := netip.ParseAddr(bare); err == nil {
		addr = addr.Unmap().WithZone("")
		if addr.Is6() {
			network, _ := addr.Prefix(64) // the default of ipv6_bits
			addr = network.Addr()
		}
		all = append(all, "key:"+addr.String(), "default:"+addr.String(), addr.String())
	}
	var once []string
	for _, key := range all {
		if !slices.Contains(once, key) {
			once = append(once, key)
		}
	}
	return once
}

// similar returns some keys that contain text, such as key:user:ann for ann. It returns none if Redis
// does not allow SCAN.
func (c *storeCommand) similar(ctx context.Context, text string) (keys []string) {
	text = strings.TrimPrefix(strings.TrimPrefix(text, c.store.Prefix), "key:")
	quoted := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
	match := quoted.Replace(c.store.Prefix) + "*" + quoted.Replace(text) + "*"
	names := c.store.Client.(*redis.Client).ScanType(ctx, 0, match, 1000, "string").Iterator()
	for len(keys) < maxSimilar && names.Next(ctx) {
		key := strings.TrimPrefix(names.Val(), c.store.Prefix)
		if isPart(key, text) && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// isPart reports whether key contains text as a word: ann is not part of hannah.
func isPart(key, text string) bool {
	isWord := func(b byte) bool {
		return b >= 0x80 || '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'z'
	}
	for from := 0; text != ""; {
		at := strings.Index(key[from:], text)
		if at < 0 {
			return false
		}
		begin, end := from+at, from+at+len(text)
		if (begin == 0 || !isWord(key[begin-1])) && (end == len(key) || !isWord(key[end])) {
			return true
		}
		from = begin + 1
	}
	return false
}

// owed describes a count at its last change.
func (s *session) owed(state quota.State) string {
	at := time.UnixMicro(state.Bucket.Time).In(s.now.Location()).Format(time.DateTime + " MST")
	text := fmt.Sprintf("%q: %s used at %s", state.Name, owedUnits(state), at)
	if state.Bucket.Prev > 0 {
		text += fmt.Sprintf(", and %d in the window before", state.Bucket.Prev)
	}
	if state.DryRun {
		text += ", as a dry run"
	}
	return text
}

// owedUnits returns the units of a count at its last change.
func owedUnits(state quota.State) string {
	units := math.Round(1000*float64(state.Bucket.Level)/float64(max(1, state.Bucket.Unit))) / 1000
	return strconv.FormatFloat(units, 'f', -1, 64)
}
