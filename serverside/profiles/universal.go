package profiles

import (
	"net/http"
	"slices"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

// Universal limits each path by itself, of an address or of a user:
//
//	/api/auth/login, /register, /reset  5 a minute of an address
//	/api/contact, /api/newsletter       5 and 10 an hour of an address
//	/api/public/, /api/search           20 and 30 a minute of an address
//	GET /api/, /api/ otherwise          100 and 50 a minute of a user
//	/api/export                         10 an hour of a user
//	/api/account/                       5 a minute of a user
//	everything                          10,000 a minute of all together, or 503
//
// Who is no user is counted as an address. All rules that match a request apply, and
// what one denies is charged to none. If there is Options.Tier, users have tiers in place
// of the two rules for /api/:
//
//	free        10 a minute,     100 an hour
//	pro         100 a minute,    10,000 an hour
//	enterprise  1,000 a minute,  100,000 an hour
//
// X-RateLimit-Reset is the Unix time at which the quota is whole again. Denials have a
// detail, as of FastAPI; serverside.FlatBody is what the same API answers from Express.
//
// Where the description contradicts itself or others: Retry-After is when the next
// request fits, not the whole window (C11). No more than 5 attempts to authenticate are
// admitted in any minute (C21), of which the table says 5 for all three paths and its
// own example 3 to register: universal_routes.json has the latter (C33). They are
// counted in this process while the store fails (C05), and everything else is then
// admitted. The limit of all together comes last, so that what a user's own denies is
// not charged to all, and is the only one with 503 (C04, C35). Hours of tiers slide, so
// that they hold whatever the minutes admit (C20). A path is that of the rule, not what
// a client writes (C41).
func Universal(o Options) serverside.Config {
	cfg := o.config(ratelimit.XRateLimit)
	cfg.Deny = serverside.DetailBody
	user := serverside.Named("user", o.user())
	rules := []serverside.Rule{
		{Pattern: "/api/auth/login", Policies: exactly(5, time.Minute), OnStoreError: serverside.FailLocal},
		{Pattern: "/api/auth/register", Policies: exactly(5, time.Minute), OnStoreError: serverside.FailLocal},
		{Pattern: "/api/auth/reset", Policies: exactly(5, time.Minute), OnStoreError: serverside.FailLocal},
		{Pattern: "/api/contact", Policies: per(5, time.Hour)},
		{Pattern: "/api/newsletter", Policies: per(10, time.Hour)},
		{Pattern: "/api/public/", Policies: per(20, time.Minute)},
		{Pattern: "/api/search", Policies: per(30, time.Minute)},
		{Pattern: "/api/export", Stage: serverside.AfterAuth, Key: user, Policies: per(10, time.Hour)},
		{Pattern: "/api/account/", Stage: serverside.AfterAuth, Key: user, Policies: per(5, time.Minute)},
	}
	cfg.Rules = slices.Concat(rules, o.universalAPI(user), []serverside.Rule{
		{Name: "global:all", Stage: serverside.Overload, Status: http.StatusServiceUnavailable, Policies: per(10000, time.Minute)},
	})
	return cfg
}

// universalAPI is for what has no rule of its own.
func (o Options) universalAPI(user serverside.Key) []serverside.Rule {
	if o.Tier != nil {
		return []serverside.Rule{
			{Name: "anonymous_read", Pattern: "GET /api/", If: lacks(o.user()), Stage: serverside.AfterAuth, Policies: per(100, time.Minute)},
			{Name: "anonymous_write", Pattern: "/api/", If: both(writing, lacks(o.user())), Stage: serverside.AfterAuth, Policies: per(50, time.Minute)},
			{Pattern: "/api/", If: has(o.user()), Stage: serverside.AfterAuth, Key: user, Tier: o.Tier, Tiers: []serverside.Tier{
				{Name: "free", Policies: minuteAndHour(10, 100)},
				{Name: "pro", Policies: minuteAndHour(100, 10000)},
				{Name: "enterprise", Policies: minuteAndHour(1000, 100000)},
			}},
		}
	}
	return []serverside.Rule{
		{Pattern: "GET /api/", Stage: serverside.AfterAuth, Key: user, Policies: per(100, time.Minute)},
		{Pattern: "/api/", If: writing, Stage: serverside.AfterAuth, Key: user, Policies: per(50, time.Minute)},
	}
}

func minuteAndHour(minute, hour int64) []quota.Policy {
	return append(per(minute, time.Minute), about(hour, time.Hour)...)
}
