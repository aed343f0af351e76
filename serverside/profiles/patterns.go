package profiles

import (
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

// Patterns limits by scope, from the narrow to the wide:
//
//	/search        60 a minute of a user, an API key or an address
//	of a user      1,000 an hour
//	of an API key  5,000 an hour
//	of an address  100 a minute
//
// by windows that slide. If there is Options.Tier, tiers stand in place of a user's
// limit:
//
//	free        100 an hour,      10 at once
//	pro         5,000 an hour,    100 at once
//	enterprise  100,000 an hour,  2,000 at once
//
// The fields are RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset. Denials have
// the error in an envelope, with the limit and the time at which it is whole again, and
// are always 429.
//
// Where the description contradicts itself or others: RateLimit-Reset is in seconds from
// now, as the draft with that name has it, and reset_at in the body is the same moment
// (C08). The address is asked first, in front of authentication, so that wrong
// credentials count, and then the others from the most specific to the least (C31).
// What a client says of itself is a key only behind authentication (C42).
func Patterns(o Options) serverside.Config {
	cfg := o.config(ratelimit.Draft06)
	cfg.Deny = serverside.LimitBody
	user, apiKey := o.user(), o.apiKey()
	ofUser := serverside.Rule{Name: "user", If: has(user), Stage: serverside.AfterAuth, Key: serverside.Named("user", user), Policies: about(1000, time.Hour)}
	if o.Tier != nil {
		ofUser.Policies, ofUser.Tier, ofUser.Tiers = nil, o.Tier, []serverside.Tier{
			{Name: "free", Policies: []quota.Policy{{Quota: 100, Window: time.Hour, Burst: 10}}},
			{Name: "pro", Policies: []quota.Policy{{Quota: 5000, Window: time.Hour, Burst: 100}}},
			{Name: "enterprise", Policies: []quota.Policy{{Quota: 100000, Window: time.Hour, Burst: 2000}}},
		}
	}
	cfg.Rules = []serverside.Rule{
		{Name: "search", Pattern: "/search", Stage: serverside.AfterAuth, Key: serverside.First(user, apiKey), Policies: about(60, time.Minute)},
		ofUser,
		{Name: "api_key", If: has(apiKey), Stage: serverside.AfterAuth, Key: serverside.Named("api_key", apiKey), Policies: about(5000, time.Hour)},
		{Name: "ip", Policies: about(100, time.Minute)},
	}
	return cfg
}
