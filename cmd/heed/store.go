package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
)

// patience is how long a command waits for Redis.
const patience = 5 * time.Second

// show says what a subject owes.
func (s *session) show(args []string) error {
	return s.inStore("store show", args, func(ctx context.Context, store *redisstore.Store, subject string) error {
		states, err := store.Inspect(ctx, subject)
		if err != nil {
			return err
		}
		unread := store.Corrupt()
		if len(states) == 0 && unread == 0 {
			fmt.Fprintf(s.out, "%q owes nothing.\n", subject)
		}
		for _, state := range states {
			fmt.Fprintln(s.out, s.owed(state))
		}
		if unread > 0 {
			return fmt.Errorf("%d counts of %q cannot be read, and are as good as none", unread, subject)
		}
		return nil
	})
}

// reset forgets what a subject owes.
func (s *session) reset(args []string) error {
	return s.inStore("store reset", args, func(ctx context.Context, store *redisstore.Store, subject string) error {
		if err := store.Reset(ctx, subject); err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%q owes nothing any more.\n", subject)
		return nil
	})
}

// inStore does something about a subject, the only argument, in the Store that the
// environment names.
func (s *session) inStore(name string, args []string, do func(context.Context, *redisstore.Store, string) error) error {
	f := s.flags(name)
	prefix := f.String("prefix", "", "what `text` keys in Redis begin with, if it is not heed:quota:")
	args, err := s.parse(f, args, 1, 1)
	if err != nil {
		return err
	}
	store, err := redisstore.FromEnv()
	if err != nil {
		return err
	}
	defer store.Client.Close()
	store.Prefix, store.Timeout = *prefix, patience
	return do(context.Background(), store, args[0])
}

// owed says what a count was when it was last changed.
func (s *session) owed(state quota.State) string {
	b := state.Bucket
	units := math.Round(1000*float64(b.Level)/float64(max(1, b.Unit))) / 1000
	text := fmt.Sprintf("%q: %s owed at %s", state.Name, strconv.FormatFloat(units, 'f', -1, 64), time.UnixMicro(b.Time).In(s.now.Location()).Format(time.DateTime+" MST"))
	if b.Prev > 0 {
		text += fmt.Sprintf(", and %d in the window before", b.Prev)
	}
	if state.DryRun {
		text += ", as a dry run"
	}
	return text
}
