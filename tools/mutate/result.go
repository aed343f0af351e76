package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// The outcomes of a mutant.
const (
	caught      = "caught"
	survived    = "survived"
	timeout     = "timeout"
	notCompiled = "not compiled"
)

// A verdict is what the tests say about a mutant.
type verdict struct {
	Outcome string `json:"outcome"`
	Package string `json:"package,omitempty"` // whose tests failed, or ran too long
	Test    string `json:"test,omitempty"`    // the first that failed; if the process ended, one that ran then; or ""
}

func (v verdict) String() string { return strings.TrimSpace(v.Outcome + " " + v.by()) }

// by returns the package and the test without its subtest.
func (v verdict) by() string {
	test, _, _ := strings.Cut(v.Test, "/")
	return strings.TrimSpace(v.Package + " " + test)
}

// A result is a line of the file of results.
type result struct {
	Seed   uint64 `json:"seed"`
	Number int    `json:"number"` // of the mutant in the order of the seed, from 0
	change
	verdict
	Seconds float64 `json:"seconds"`
}

// appendTo adds r to the end of a file.
func (r result) appendTo(file string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	e := json.NewEncoder(f)
	e.SetEscapeHTML(false) // people read the code in it
	return e.Encode(r)
}

func readResults(file string) (all []result, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(data)); d.More(); {
		var r result
		if err := d.Decode(&r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// printTable prints who caught how many of the mutants in a file of results, and which ones nobody caught.
func printTable(w io.Writer, file string) error {
	all, err := readResults(file)
	if err != nil {
		return err
	}
	outcomes, by := map[string]int{}, map[string]int{}
	for _, r := range all {
		outcomes[r.Outcome]++
		if r.Outcome == caught {
			by[r.by()]++
		}
	}
	fmt.Fprintf(w, "%d mutants: %d caught, %d timed out, %d survived; %d others did not compile\n",
		len(all)-outcomes[notCompiled], outcomes[caught], outcomes[timeout], outcomes[survived], outcomes[notCompiled])
	if len(by) > 0 {
		fmt.Fprintln(w, "\ncaught by")
	}
	for _, name := range slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(by[b]-by[a], cmp.Compare(a, b))
	}) {
		fmt.Fprintf(w, "%6d  %s\n", by[name], name)
	}
	for _, outcome := range []string{timeout, survived} {
		if outcomes[outcome] > 0 {
			fmt.Fprintf(w, "\n%s\n", outcome)
		}
		for _, r := range all {
			if r.Outcome == outcome {
				fmt.Fprintf(w, "  %s  %s\n", strings.TrimSpace(r.place()+" "+r.by()), r.Kind)
				fmt.Fprintf(w, "    - %s\n    + %s\n", oneLine(r.Before), oneLine(r.After))
			}
		}
	}
	return nil
}

// oneLine joins the lines of code, and cuts off what is too wide.
func oneLine(code string) string {
	joined := []rune(strings.Join(strings.Fields(code), " "))
	if len(joined) > 110 {
		return string(joined[:109]) + "…"
	}
	return string(joined)
}
