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
	patience     = 5 * time.Second // a command waits for Redis
	quotaPrefix  = "heed:quota:"
	mostSimilar  = 5
	shownAtFirst = 50
)

// A storeCommand is what the commands about a Store have in common.
type storeCommand struct {
	*session
	store *redisstore.Store
	rules *ruleNumbers // nil if no file was named
}

// inStore calls do with the Store that the environment names, and closes it.
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
	prefixUse = "what `text` names in Redis begin with, if it is not heed:quota:"
	rulesUse  = "the rule `file` in force, for the numbers of the limits"
)

// list prints what each key has used.
func (s *session) list(args []string) error {
	f := s.flags("store list")
	prefix, rules := f.String("prefix", "", prefixUse), f.String("rules", "", rulesUse)
	denied := f.Bool("denied", false, "only what is denied")
	n := f.Int("n", shownAtFirst, "how many lines are printed, at most")
	if _, err := s.parse(f, args, 0, 0); err != nil {
		return err
	}
	if *denied && *rules == "" {
		fmt.Fprintln(s.err, "heed store list: -denied needs -rules FILE: Redis does not know the limits")
		return errUsage
	}
	return s.inStore(*prefix, *rules, func(ctx context.Context, c *storeCommand) error {
		return c.list(ctx, max(0, *n), *denied)
	})
}

func (c *storeCommand) list(ctx context.Context, most int, deniedOnly bool) error {
	var first []row // the first of all, in their order
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
		fmt.Fprintf(c.out, "%d lines more: -n %d prints all.\n", rows-len(first), rows)
	}
	switch {
	case c.rules == nil:
		const ignorant = "Redis does not know the limits: who is denied, and until when, says -rules FILE."
		fmt.Fprintf(c.out, "%s. %s\n", count(keys, "key"), ignorant)
	default:
		fmt.Fprintf(c.out, "%s, %d of them denied.\n", count(keys, "key"), denied)
	}
	if unknown > 0 {
		fmt.Fprintf(c.out, "? is a limit that the file does not have: its numbers are not known.\n")
	}
	return nil
}

// keysFault is err of Keys, with what to do about it.
func (c *storeCommand) keysFault(err error) error {
	if redis.HasErrorPrefix(err, "NOPERM") {
		return fmt.Errorf("%w: list with a user of Redis that may SCAN, as operators may", err)
	}
	return err
}

// A row is what is said of one count.
type row struct {
	key, limit, used, state, until string

	denied bool
	wait   time.Duration // until it is not, or whole, or forgotten
}

// The states of a row.
const (
	unknownLimit = "?"
	admitted     = "admitted"
	isDenied     = "denied"
	wouldBe      = "would be denied" // in a dry run
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

// rowsOf are those of one key. Of what is owed no more there is none.
func (c *storeCommand) rowsOf(ctx context.Context, k redisstore.KeyState) (rows []row) {
	for _, state := range k.States {
		found := c.rules.of(ctx, k.Key, state)
		if len(found) == 0 {
			rows = append(rows, row{
				key: k.Key, limit: state.Name, used: owedUnits(state), state: unknownLimit,
				until: "forgotten by " + c.clock(k.TTL), wait: k.TTL,
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
				r.until = "whole at " + r.until
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// clock prints when a wait is over, by the clock of this machine.
func (s *session) clock(wait time.Duration) string {
	at, layout := s.now.Add(wait+time.Second-1).Truncate(time.Second), time.TimeOnly
	if wait > 12*time.Hour {
		layout = time.DateTime
	}
	return fmt.Sprintf("%s (%s)", at.Format(layout), roughly(wait))
}

// roughly is d in its two largest units.
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

// printable is a key as it is, or in quotes if it would do something to a terminal.
func printable(key string) string {
	if quoted := strconv.Quote(key); quoted != `"`+key+`"` {
		return quoted
	}
	return key
}

// show says what a key owes.
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
		return c.tell(ctx, k)
	})
}

// tell says what is stored of a key.
func (c *storeCommand) tell(ctx context.Context, k *keyFound) error {
	for _, state := range k.States {
		found := c.rules.of(ctx, k.Key, state)
		if len(found) == 0 {
			fmt.Fprintln(c.out, "   "+c.owed(state))
		}
		for _, n := range found {
			if n.hidden {
				continue
			}
			fmt.Fprintln(c.out, "   "+c.standing(n, state, k.At))
		}
	}
	if c.rules == nil && len(k.States) > 0 {
		fmt.Fprintf(c.out, "   whole by %s, at the latest; -rules FILE says whether it is denied until then\n", c.clock(k.TTL))
	}
	if k.unread > 0 {
		return fmt.Errorf("heed: %s cannot be read: as good as none", count(k.unread, "count"))
	}
	return nil
}

// standing says where a key stands with a limit.
func (c *storeCommand) standing(n numbers, state quota.State, at time.Time) string {
	r := n.row(state, at.UnixMicro())
	text := fmt.Sprintf("%q: %s used, ", r.limit, strings.Replace(r.used, "/", " of ", 1))
	switch {
	case r.wait == 0:
		return text + "nothing is owed"
	case r.state == admitted:
		return text + "whole at " + c.clock(r.wait)
	default:
		return text + r.state + " until " + c.clock(r.wait)
	}
}

// reset has what a key owes forgotten.
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
		for _, state := range k.States {
			fmt.Fprintln(c.out, c.owed(state))
		}
		if err := c.store.Reset(ctx, k.Key); err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s owes nothing any more. Every process sees that within a second.\n", printable(k.Key))
		return nil
	})
}

// A keyFound is what Redis has of a key.
type keyFound struct {
	redisstore.KeyState
	unread int // counts that make no sense
}

// find returns what Redis has of a key, however it was spelt. If it has nothing, that is
// said, and errWrong.
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
			fmt.Fprintf(c.err, "heed: there is %s, too\n", printable(k.Key))
		}
	}
	if found != nil {
		return found, nil
	}
	fmt.Fprintln(c.err, "heed: there is no such key: it owes nothing, or is spelt in another way")
	for _, key := range c.similar(ctx, text) {
		fmt.Fprintf(c.err, "did you mean %s\n", printable(key))
	}
	fmt.Fprintln(c.err, "headers, cookies and form values are hashed: heed rules key header:NAME prints the hash of one")
	return nil, errWrong
}

// inspect returns what Redis has of a key, or nil.
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

// spellings are the keys that text may be meant for: a key, the name that it has in Redis,
// what a rule's key makes of a request, or an address.
func spellings(text, prefix string) []string {
	text = strings.TrimPrefix(text, prefix)
	bare := strings.TrimPrefix(strings.TrimPrefix(text, "key:"), "default:")
	all := []string{text, "key:" + bare, "default:" + bare, bare}
	if addr, err := netip.ParseAddr(bare); err == nil {
		addr = addr.Unmap().WithZone("")
		if addr.Is6() {
			network, _ := addr.Prefix(64) // by which clients are told apart, unless ipv6_bits says otherwise
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

// similar returns some keys of which text is a part, such as key:user:ann for ann. It is
// a help, and there is none if Redis does not let it SCAN.
func (c *storeCommand) similar(ctx context.Context, text string) (keys []string) {
	text = strings.TrimPrefix(strings.TrimPrefix(text, c.store.Prefix), "key:")
	quoted := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
	match := quoted.Replace(c.store.Prefix) + "*" + quoted.Replace(text) + "*"
	names := c.store.Client.(*redis.Client).ScanType(ctx, 0, match, 1000, "hash").Iterator()
	for len(keys) < mostSimilar && names.Next(ctx) {
		key := strings.TrimPrefix(names.Val(), c.store.Prefix)
		if isPart(key, text) && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// isPart reports whether text stands in key by itself: ann is no part of hannah.
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

// owed says what a count was when it was last changed.
func (s *session) owed(state quota.State) string {
	at := time.UnixMicro(state.Bucket.Time).In(s.now.Location()).Format(time.DateTime + " MST")
	text := fmt.Sprintf("%q: %s owed at %s", state.Name, owedUnits(state), at)
	if state.Bucket.Prev > 0 {
		text += fmt.Sprintf(", and %d in the window before", state.Bucket.Prev)
	}
	if state.DryRun {
		text += ", as a dry run"
	}
	return text
}

// owedUnits is how many units a count was when it was last changed.
func owedUnits(state quota.State) string {
	units := math.Round(1000*float64(state.Bucket.Level)/float64(max(1, state.Bucket.Unit))) / 1000
	return strconv.FormatFloat(units, 'f', -1, 64)
}
