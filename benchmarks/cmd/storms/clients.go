package main

import (
	"net/http"
	"slices"
	"time"

	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/heedhttp/heed/internal/lab"
)

// clients returns those of the lab, and rivals before heed.
func clients() []lab.Client {
	all := lab.Clients()
	ours := slices.IndexFunc(all, func(c lab.Client) bool { return c.Name == "heed" })
	return slices.Insert(all, ours,
		lab.Client{Name: "go-retryablehttp", Over: overRetryablehttp},
		lab.Client{Name: "failsafe-go", Over: overFailsafe},
	)
}

// overRetryablehttp has the default settings.
func overRetryablehttp(base http.RoundTripper) http.RoundTripper {
	c := retryablehttp.NewClient()
	c.Logger, c.HTTPClient = nil, &http.Client{Transport: base}
	return &retryablehttp.RoundTripper{Client: c}
}

// overFailsafe has a policy as the documentation shows one for HTTP.
func overFailsafe(base http.RoundTripper) http.RoundTripper {
	policy := failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(3).WithBackoff(time.Second, 30*time.Second)
	return failsafehttp.NewRoundTripper(base, policy.Build())
}
