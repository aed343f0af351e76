package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// ruleNumbers are the limits of a rule file, by their names in a Store. A nil one has none.
type ruleNumbers struct {
	limits map[string][]numbers
	tables []string          // rules with limits of single keys
	keys   redisstore.Limits // assumed to be the Limits of these rules
}

// numbers are the numbers of one limit.
type numbers struct {
	limit  *quota.Limit
	note   string // tells it from others, such as a tier's name
	counts bool   // counts, but does not deny
	blocks bool   // a penalty: what it owes is a time
	hidden bool   // not shown
	dryRun bool
}

// readNumbers reads a rule file.
func readNumbers(name string, client redis.UniversalClient) (*ruleNumbers, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("heed: %w", err)
	}
	l, err := rulefile.List(name, data, quiet)
	if err != nil {
		return nil, err
	}
	n := &ruleNumbers{limits: make(map[string][]numbers)}
	n.keys.Client, n.keys.Timeout = client, patience
	for _, listed := range append(l.Rules, l.Allow...) {
		if err := n.add(listed); err != nil {
			return nil, fmt.Errorf("heed: %w", err)
		}
	}
	return n, nil
}

func (n *ruleNumbers) Close() error { return n.keys.Close() }

// add adds the limits of a rule.
func (n *ruleNumbers) add(listed rulefile.Listed) error {
	rule := listed.Rule
	isTable := func(function string) bool { return strings.HasPrefix(function, "limits ") }
	if slices.ContainsFunc(listed.Functions, isTable) {
		n.tables = append(n.tables, rule.Name)
	}
	put := func(p quota.Policy, of numbers) error {
		p.Name = policyName(rule.Name, p)
		limit, err := p.Compile()
		of.limit = limit
		n.limits[p.Name] = append(n.limits[p.Name], of)
		return err
	}
	for _, p := range rule.Policies {
		if err := put(p, numbers{dryRun: rule.DryRun}); err != nil {
			return err
		}
	}
	for _, tier := range rule.Tiers {
		for _, p := range tier.Policies {
			if err := put(p, numbers{dryRun: rule.DryRun, note: tier.Name}); err != nil {
				return err
			}
		}
	}
	if rule.Login != nil { // its second rule, and known networks
		for _, p := range rule.Policies {
			p.Name = "account/" + strings.TrimPrefix(policyName(rule.Name, p), rule.Name+"/")
			if err := put(p, numbers{dryRun: rule.DryRun}); err != nil {
				return err
			}
		}
		n.limits[rule.Name+"/known"] = []numbers{{hidden: true}}
	}
	if p := rule.Penalty; p != nil {
		strikes := quota.Policy{Name: "strikes", Quota: p.After, Window: p.Within}
		if err := put(strikes, numbers{counts: true}); err != nil {
			return err
		}
		n.limits[rule.Name+"/penalties"] = []numbers{{hidden: true}} // number of penalties
		return put(debt, numbers{dryRun: rule.DryRun, blocks: true})
	}
	return nil
}

// debt is the policy of all penalties. Its units are µs.
var debt = quota.Policy{Name: "penalty", Quota: 1e6, Window: time.Second, Burst: 1000}

// withoutRules returns the numbers of a count that are the same in all rules: those of penalties.
func withoutRules(name string) []numbers {
	switch name[strings.LastIndexByte(name, '/')+1:] {
	case "penalty":
		limit, _ := debt.Compile() // cannot fail
		return []numbers{{limit: limit, blocks: true}}
	case "penalties":
		return []numbers{{hidden: true}}
	}
	return nil
}

// policyName returns the name of a rule's policy in a Store.
func policyName(rule string, p quota.Policy) string {
	window := p.Calendar.String()
	if p.Calendar == 0 {
		window = p.Window.String()
		if strings.HasSuffix(window, "m0s") {
			window = strings.TrimSuffix(window, "0s")
		}
		if strings.HasSuffix(window, "h0m") {
			window = strings.TrimSuffix(window, "0m")
		}
	}
	return rule + "/" + cmp.Or(p.Name, window)
}

// of returns the numbers of a count: several if the rule has tiers, none if they are unknown.
func (n *ruleNumbers) of(ctx context.Context, key string, state quota.State) []numbers {
	if n == nil {
		return withoutRules(state.Name)
	}
	name, isKey := strings.CutPrefix(key, "key:")
	for _, rule := range n.tables {
		if !isKey || !strings.HasPrefix(state.Name, rule+"/") {
			continue
		}
		own, err := n.keys.Limits(ctx, name)
		if err != nil || len(own) == 0 {
			continue
		}
		for _, p := range own {
			if p.Quota > 0 && policyName(rule, p) == state.Name {
				p.Name = state.Name
				if limit, err := p.Compile(); err == nil {
					return []numbers{{limit: limit, note: "its own", dryRun: state.DryRun}}
				}
			}
		}
		return withoutRules(state.Name) // or from before the key had limits of its own
	}
	if known := n.limits[state.Name]; len(known) > 0 {
		return known
	}
	return withoutRules(state.Name)
}

// row describes a count at a time by Redis' clock, in µs.
func (n numbers) row(state quota.State, now int64) row {
	b := n.limit.Drain(state.Bucket, now)
	d := n.limit.Describe(b, now)
	r := row{limit: state.Name, state: admitted, wait: d.ResetAfter}
	r.used = strconv.FormatInt(n.limit.AtOnce()-d.Remaining, 10) + "/" + strconv.FormatInt(n.limit.AtOnce(), 10)
	if n.note != "" {
		r.limit += " (" + n.note + ")"
	}
	wait := n.limit.Wait(b, 1, now)
	if n.blocks {
		r.used, r.wait = "-", wait
	}
	if wait == 0 || n.counts {
		return r
	}
	r.wait, r.denied, r.state = wait, !n.dryRun && !state.DryRun, isDenied
	if n.blocks {
		r.state = isBlocked
	}
	if !r.denied {
		r.state = wouldBe + r.state
	}
	return r
}
