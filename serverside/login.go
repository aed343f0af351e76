package serverside

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/heedhttp/heed/quota"
)

// Logins returns a Rule that limits password guesses. Use it with a rule by ClientIP, because
// clients can make up account names:
//
//	Rules: []serverside.Rule{
//		{Name: "address", Key: serverside.ClientIP(), Policies: []quota.Policy{quota.PerMinute(300)}},
//		serverside.Logins("login", "POST /login", serverside.FormValue("user")),
//	},
//
// pattern must have a method. account names the account, whether it exists or not.
//
// By default a 2xx is a successful login. If the handler answers a failed login with 200, or a
// successful one with a redirect, set Login.Failed. See Login for the limits, which can be
// changed in the Rule, such as Penalty.Max.
func Logins(name, pattern string, account Key) Rule {
	penalty := loginPenalty
	return Rule{
		Name: name, Pattern: pattern, Key: account, Login: new(Login),
		Policies: []quota.Policy{quota.PerMinute(5)}, Penalty: &penalty, OnStoreError: FailLocal,
	}
}

// loginPenalty is the Penalty of a login rule that has none.
var loginPenalty = Penalty{After: 5, Within: time.Minute, First: 12 * time.Second, Max: time.Hour}

// A Login makes a Rule limit password guesses, in two ways. The Rule's Key names the account.
// The numbers are those of Logins:
//
//   - By account and network (an IPv4 /24 or IPv6 /48): five attempts a minute that are not
//     successful. The fifth failure blocks the network for 12 s, and each further one twice as
//     long, up to an hour. A success clears this. These are the Rule's Policies and Penalty.
//   - By account: the same Policies, for all networks together that have not logged in to the
//     account for 30 days. So they have at most ten guesses in any minute. A network that has
//     logged in is not affected by guesses from others; the owner in a new network is.
//
// Account names that differ only in case or surrounding spaces are counted together, but a
// success clears only the exact name. A pattern with the method POST matches every method
// except GET, HEAD, OPTIONS and TRACE, because many handlers do not check the method.
//
// Every attempt is charged until it is known to be a success. A success is a 2xx that the
// handler wrote, and a failure is a 4xx; Failed decides about statuses below 400 if it is set.
// Anything else, such as a redirect, a 5xx or a disconnected client, stays charged but does not
// count towards the Penalty.
//
// A request whose body does not name an account (FormValue) is denied: with 413 if the body is
// longer than 64 KiB, and otherwise with 400.
//
// Networks are told apart by Config.Key if that is a ClientIP, else by the first rule with a
// ClientIP, else by the peer's address. The zero Login is ready to use.
type Login struct {
	// Failed, if not nil, reports whether a response with a status from 200 to 399 is a failed
	// login. If it returns false, the login succeeded, even if the response is a redirect.
	Failed func(Response) bool
}

// succeeded reports whether r is known to be a success.
func (l *Login) succeeded(r Response) bool {
	if l.Failed != nil && r.Status >= 200 && r.Status < http.StatusBadRequest {
		return !l.Failed(r)
	}
	return Succeeded(r)
}

// failed reports whether r is known to be a failure.
func (l *Login) failed(r Response) bool {
	if r.Status < http.StatusBadRequest {
		return r.Status >= 200 && l.Failed != nil && l.Failed(r)
	}
	return r.Status < http.StatusInternalServerError
}

// A login is one of the two rules that a Login compiles to.
type login struct {
	account   Key
	byNetwork bool         // counts by account and network; the other rule counts by account
	key       Key          // the account and the network
	known     *quota.Limit // a key that has logged in owes it a unit
}

// knownFor is how long a network is known after a login.
const knownFor = 30 * 24 * time.Hour

// loginRules compiles from, which has a Login, to two rules.
func (c *compiler) loginRules(from Rule, cfg *Config, field string) []*rule {
	for _, other := range []struct {
		field string
		isSet bool
	}{
		{"Tiers", len(from.Tiers) > 0}, {"Tier", from.Tier != nil}, {"Limits", from.Limits != nil},
		{"Settle", from.Settle != nil}, {"Cost", from.Cost != nil},
	} {
		if other.isSet {
			c.fault(field+"."+other.field, "must not be set with Login")
		}
	}
	if from.Key == nil {
		c.fault(field+".Key", "is required: it names the account that a login is for")
		from.Key = allClients
	}
	l, name := *from.Login, cmp.Or(from.Name, from.Pattern)
	from.Settle = RefundIf(l.succeeded)
	byNetwork, byAccount := from, from
	// A success counts only for the exact name, because names that differ in case may belong to
	// different people. Guesses at all of them are counted together.
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
		c.fault(field+".Pattern", "is %q: must have a method, as in \"POST /login\": "+
			"other methods do not log in", from.Pattern)
	}
	knows, _ := quota.Policy{Name: name + "/known", Quota: 1, Window: knownFor, MaxDebt: quota.Forever}.Compile() // cannot fail
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

// networkOf returns a Key of the client's network: the /24 or /48 of its address.
func (c *compiler) networkOf(cfg *Config) Key {
	ip := func(r *http.Request) (netip.Addr, bool) { return parseHop(r.RemoteAddr) }
	keys := []Key{cfg.Key}
	for _, r := range cfg.Rules {
		keys = append(keys, r.Key)
	}
	if i := slices.IndexFunc(keys, func(k Key) bool { return k != nil && known(k).ip != nil }); i >= 0 {
		ip = known(keys[i]).ip
		if known(keys[i]).origin == claimed {
			c.fault("Key", "trusts every peer as a proxy, so clients can choose the network by which Login counts them")
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
		network, _ := addr.Prefix(bits) // cannot fail: bits fits the address
		return network.String()
	}}
}

// knowsNetwork reports whether the request's network is known: whether there was a login to the
// account from it.
func (c *check) knowsNetwork(l *login) bool {
	// A charge of 2 never fits, so nothing is taken, and the decision shows what is left.
	charge := quota.Charge{Key: storeKey(keySpace, l.key.Of(c.r)), Limit: l.known, N: 2, DryRun: true}
	d, err := c.store.takeOne(c.r.Context(), match{local: c.failed != nil}, charge)
	if err != nil {
		c.failed = err // reported when the request's charges are decided without the Store
		d, err = c.store.takeOne(c.r.Context(), match{local: true}, charge)
	}
	return err == nil && d.Remaining == 0
}

// knownCharges returns the charges that make m's network known.
func (l *login) knownCharges(m match) []quota.Charge {
	if l == nil || !l.byNetwork {
		return nil
	}
	forget, know := m.charge(l.known, -maxOwed), m.charge(l.known, 1)
	forget.DryRun, know.DryRun = true, true
	return []quota.Charge{forget, know}
}
