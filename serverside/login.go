package serverside

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/heedhttp/heed/quota"
)

// Logins is a rule for attempts to log in to an account. pattern has a method, as in
// "POST /login". account is who the login is for, whether there is such an account or not,
// such as FormValue("user"). It is what clients say, so there must be a rule by ClientIP
// beside it.
//
// What a 2xx means, the rule has to be told: if a failed login is answered 200 with the
// form again, or a good one 303, set Login.Failed. See Login for what is limited; the rule
// that is returned may be changed, such as its Penalty.Max.
func Logins(name, pattern string, account Key) Rule {
	penalty := loginPenalty
	return Rule{
		Name: name, Pattern: pattern, Key: account, Login: new(Login),
		Policies: []quota.Policy{quota.PerMinute(5)}, Penalty: &penalty, OnStoreError: FailLocal,
	}
}

// loginPenalty is that of a Login which has none.
var loginPenalty = Penalty{After: 5, Within: time.Minute, First: 12 * time.Second, Max: time.Hour}

// A Login has a rule limit guesses at the passwords of accounts, which its Key names. As
// Logins makes it:
//
//   - By account and network: of each account, five attempts a minute from each network
//     (an IPv4 /24, an IPv6 /48) that are no success. At the fifth failure the network has
//     to wait for 12 s, and twice as long after each further one, up to an hour. A success
//     forgives it all. These are the rule's Policies and Penalty.
//   - By account: the same Policies for all networks together from which nobody has logged
//     in to the account for 30 days. So guesses from all of these are no more than ten in
//     any minute; and whoever has logged in before is not kept out by what others do. An
//     owner in a new network is, for as long as others guess.
//
// Case and spaces around an account's name make no difference to how often it is guessed at,
// but to what a success forgives. A pattern of POST is about all methods but GET, HEAD,
// OPTIONS and TRACE, for handlers look at no other.
//
// What is not a known success is charged, while it is being answered too. A success is a
// 2xx that the handler wrote; of what is below 400, Failed decides, if it is set. A failure
// is what Failed says, and 4xx. Everything else, such as a redirect, 5xx or a client that
// goes, is charged, but is not one of the failures that a Penalty counts.
//
// Each request says whose account it is about. One whose body does not (FormValue) is
// denied: 413 if the body is longer than 64 KiB, and otherwise 400.
//
// The networks are those of Config.Key if that is a ClientIP, otherwise of the first rule
// by ClientIP, otherwise of the peer. The zero Login is ready to use.
type Login struct {
	// Failed, if not nil, reports whether a response below 400 is a login that failed.
	// If it is not, it is a success, also if it is a redirect.
	Failed func(Response) bool
}

// succeeded reports whether r is a known success.
func (l *Login) succeeded(r Response) bool {
	if l.Failed != nil && r.Status >= 200 && r.Status < http.StatusBadRequest {
		return !l.Failed(r)
	}
	return Succeeded(r)
}

// failed reports whether r is a known failure.
func (l *Login) failed(r Response) bool {
	if r.Status < http.StatusBadRequest {
		return r.Status >= 200 && l.Failed != nil && l.Failed(r)
	}
	return r.Status < http.StatusInternalServerError
}

// A login is one of the two rules of a Login.
type login struct {
	account   Key
	byNetwork bool         // it counts by account and network; the other, by account
	key       Key          // the account and the network
	known     *quota.Limit // of which key owes a unit if it has logged in
}

// knownFor is for how long a network is known from which somebody has logged in.
const knownFor = 30 * 24 * time.Hour

// loginRules compiles from, which has a Login, to its two rules.
func (c *compiler) loginRules(from Rule, cfg *Config, field string) []*rule {
	for _, other := range []struct {
		field string
		isSet bool
	}{
		{"Tiers", len(from.Tiers) > 0}, {"Tier", from.Tier != nil}, {"Limits", from.Limits != nil},
		{"Settle", from.Settle != nil}, {"Cost", from.Cost != nil},
	} {
		if other.isSet {
			c.fault(field+"."+other.field, "has no meaning beside Login")
		}
	}
	if from.Key == nil {
		c.fault(field+".Key", "must not be nil: it is the account that a login is for")
		from.Key = everybody
	}
	l, name := *from.Login, cmp.Or(from.Name, from.Pattern)
	from.Settle = RefundIf(l.succeeded)
	byNetwork, byAccount := from, from
	// A success forgives, and makes known, the account that is written so, and no other: two
	// that differ in case may be two people's. The guesses at all of them are counted together.
	network := c.networkOf(cfg)
	exact := KeyFunc(func(r *http.Request) string { return exactly(from.Key, r) })
	byNetwork.Name, byNetwork.Key = name, Join(exact, network)
	byAccount.Name, byAccount.Penalty, byAccount.MaxInFlight = name+"/account", nil, 0
	penalty := loginPenalty
	if from.Penalty != nil {
		penalty = *from.Penalty
	}
	if penalty.Strike == nil {
		penalty.Strike = l.failed
	}
	if penalty.Pardon == nil {
		penalty.Pardon = l.succeeded
	}
	byNetwork.Penalty = &penalty

	rules := []*rule{c.rule(byNetwork, cfg.OnStoreError, field), c.rule(byAccount, cfg.OnStoreError, field)}
	if m := rules[0].matcher; from.Pattern == "" || m != nil && m.method == "" {
		c.fault(field+".Pattern", "%q needs a method, as in \"POST /login\": "+
			"what is no attempt to log in must not count as one", from.Pattern)
	}
	knows, _ := quota.Policy{Name: name + "/known", Quota: 1, Window: knownFor}.Compile() // is right
	for i, r := range rules {
		r.login = &login{account: from.Key, byNetwork: i == 0, key: byNetwork.Key, known: knows}
		r.key = &builtIn{origin: known(from.Key).origin, text: "account", of: r.key.Of, body: known(from.Key).body}
		if r.matcher != nil {
			r.matcher.unsafe = !isSafe(r.matcher.method)
		}
	}
	for _, p := range rules[1].policies {
		p.shown = whenDenying
	}
	return rules
}

// networkOf is the network that a client is in: the /24 or /48 of its address.
func (c *compiler) networkOf(cfg *Config) Key {
	ip := func(r *http.Request) (netip.Addr, bool) { return parseHop(r.RemoteAddr) }
	keys := []Key{cfg.Key}
	for _, r := range cfg.Rules {
		keys = append(keys, r.Key)
	}
	if i := slices.IndexFunc(keys, func(k Key) bool { return k != nil && known(k).ip != nil }); i >= 0 {
		ip = known(keys[i]).ip
		if known(keys[i]).origin == claimed {
			c.fault("Key", "believes anybody about the client's address, by which a Login tells networks apart")
		}
	}
	return &builtIn{origin: address, text: "the client's network", of: func(r *http.Request) string {
		addr, ok := ip(r)
		if !ok {
			return ""
		}
		bits := 48
		if addr.Is4() {
			bits = 24
		}
		network, _ := addr.Prefix(bits) // cannot fail: an address has as many
		return network.String()
	}}
}

// knowsNetwork reports whether somebody has logged in to the account of the request from
// its network.
func (c *check) knowsNetwork(l *login) bool {
	// It asks for more than there ever is: nothing is taken, and the decision says what is left.
	charge := quota.Charge{Key: storeKey(keySpace, l.key.Of(c.r)), Limit: l.known, N: 2, DryRun: true}
	d, err := c.store.takeOne(c.r.Context(), match{local: c.failed != nil}, charge)
	if err != nil {
		c.failed = err // what is to be charged is not asked for, and tells of it
		d, err = c.store.takeOne(c.r.Context(), match{local: true}, charge)
	}
	return err == nil && d.Remaining == 0
}

// knowing are the charges by which m's network is known.
func (l *login) knowing(m match) []quota.Charge {
	if l == nil || !l.byNetwork {
		return nil
	}
	forget, know := m.charge(l.known, -everything), m.charge(l.known, 1)
	forget.DryRun, know.DryRun = true, true
	return []quota.Charge{forget, know}
}
