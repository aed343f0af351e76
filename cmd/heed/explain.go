package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/heedhttp/heed/internal/explain"
)

// explain explains a response or one value.
func (s *session) explain(args []string) error {
	f := s.flags("explain")
	status := f.Int("status", 0, "the response's status `code`, if it is not in the header")
	args, err := s.parse(f, args, 0, 1)
	if err != nil {
		return err
	}
	text := ""
	if len(args) == 1 {
		text = args[0]
	} else if text, err = s.input(); err != nil {
		return err
	}
	a, err := explain.Text(text, *status, nil, s.now)
	switch {
	case err != nil && len(args) == 1:
		return fmt.Errorf("heed: %w\nto read a file: heed explain < FILE", err)
	case err != nil:
		return fmt.Errorf("heed: %w", err)
	}
	return s.say(a)
}

// say prints a.
func (s *session) say(a *explain.Answer) error {
	for _, assumed := range a.Assumed {
		fmt.Fprintln(s.out, assumed)
	}
	if a.Known {
		if a.Wait == "0s" {
			fmt.Fprintln(s.out, "Wait 0s: the request may be repeated at once.")
		} else {
			fmt.Fprintf(s.out, "Wait %s: until %s.\n", a.Wait, s.moment(a.Until))
		}
		fmt.Fprintf(s.out, "This is in %s.\n", strings.Join(a.Fields, ", "))
	} else {
		fmt.Fprintf(s.out, "It does not ask to wait.\n")
	}
	if len(a.Quotas) > 0 {
		fmt.Fprintf(s.out, "\nQuotas, the tightest first:\n")
	}
	for _, q := range a.Quotas {
		fmt.Fprintf(s.out, "   %q: %s\n", q.Name, s.quota(q))
	}
	for _, note := range a.Notes {
		fmt.Fprintf(s.out, "\n%s\n", wrapped(note))
	}
	if !a.Known && len(a.Quotas) == 0 {
		return errWrong
	}
	own := "In Go, read it by"
	if a.Client != "" {
		own = "With your own client, read the wait by"
		fmt.Fprintf(s.out, "\nIn Go, this client obeys it by itself:\n\n\t%s\n",
			strings.ReplaceAll(a.Client, "\n", "\n\t"))
	}
	fmt.Fprintf(s.out, "\n%s:\n\n\t%s\n", own, a.Call)
	return nil
}

// moment formats a time by the clock of this machine.
func (s *session) moment(milliseconds int64) string {
	return time.UnixMilli(milliseconds).In(s.now.Location()).Format("Monday, 2 January 2006, 15:04:05 MST")
}

// quota describes q.
func (s *session) quota(q explain.Quota) string {
	var parts []string
	switch {
	case q.Left != "" && q.Of != "":
		parts = append(parts, fmt.Sprintf("%s of %s %s left", q.Left, q.Of, q.Unit))
	case q.Left != "":
		parts = append(parts, fmt.Sprintf("%s %s left", q.Left, q.Unit))
	case q.Of != "":
		parts = append(parts, fmt.Sprintf("%s %s", q.Of, q.Unit))
	}
	if q.Per != "" {
		parts = append(parts, "per "+q.Per)
	}
	if q.Next != "" {
		parts = append(parts, "one more in "+q.Next)
	}
	if q.Reset != "" {
		parts = append(parts, fmt.Sprintf("full in %s, %s", q.Reset, s.moment(q.Whole)))
	}
	return strings.Join(parts, ", ")
}
