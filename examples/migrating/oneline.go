package main

import (
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/retryable"
)

func newClient(logger hclog.Logger) *retryablehttp.Client {
	client := retryablehttp.NewClient()
	client.RetryMax = 3
	client.HTTPClient.Timeout = 10 * time.Second
	client.Logger = logger

	retryable.Install(client, &heed.Transport{}) // the new line
	return client
}

// asBefore turns off what differs.
func asBefore(client *retryablehttp.Client) {
	retryable.Install(client, &heed.Transport{
		Retry:  heed.RetryPolicy{If: retryable.If(client.CheckRetry)}, // repeats a POST after a 503
		Budget: heed.Unlimited,                                        // bounds no retries
		Board:  heed.NoBoard,                                          // holds no other requests back
	})
}
