// Package orders is a client of an API. Its test waits for a simulated minute, which takes no
// time:
//
//	go test -v ./examples/testing
package orders

import (
	"fmt"
	"net/http"
	"strings"
)

// A Client places orders.
type Client struct {
	URL  string
	HTTP *http.Client
}

// Place orders an item. The id makes it safe to retry.
func (c *Client) Place(id, item string) error {
	req, err := http.NewRequest("POST", c.URL+"/orders", strings.NewReader(item))
	if err != nil {
		return err
	}
	req.Header.Set("Idempotency-Key", id)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("orders: order %s: %s", id, resp.Status)
	}
	return nil
}
