package heed

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/heedhttp/heed/internal/hostkey"
)

// hosts remembers the spelling of scheme://host. It is shared by all
// Transports, and bounded.
var hosts hostkey.Cache

// ByHost is a Key: scheme://host, whoever asks.
func ByHost(req *http.Request) string { return hosts.Key(req.URL.Scheme, req.URL.Host) }

// ByCredential is a Key: scheme://host and, if the request has a credential, a hash of it,
// from which it cannot be read. So one customer's limit stops only that one. The zero
// Transport adds the request's scope, where the host is that of a vendor that has any: see
// Transport.Key.
//
// The credential is that of the Authorization field, where a key may stand without a scheme, or
// else of the first field in which vendors expect one (X-Api-Key, Private-Token and the like).
// Of a scheme that signs each request (AWS4-HMAC-SHA256, Digest, OAuth 1.0, Hawk, SharedKey)
// it is the part that names the account, so that all requests of one account share a
// cool-down. A scheme that is not known counts for nothing, and neither does a key in the URL
// or a cookie: for these write a Key. A token that is renewed is a new customer.
//
// The credential must be on the request that reaches the Transport: what is added in Base
// cannot be seen. So put what adds it around heed (oauth2.Transport{Base: &heed.Transport{}}),
// or write a Key that takes the customer from the request's context.
func ByCredential(req *http.Request) string {
	host := ByHost(req)
	credential := credentialOf(req.Header)
	if credential == "" {
		return host
	}
	sum := sha256.Sum256([]byte(credential))
	return host + " " + hex.EncodeToString(sum[:16])
}

// keyFields are those in which vendors expect a key that is the same in all requests of a
// customer.
var keyFields = []string{
	"X-Api-Key", "Api-Key", "Apikey", "X-Apikey", "X-Api-Token", "X-Auth-Token", "X-Auth-Key", "X-Access-Token",
	"X-Goog-Api-Key",             // Google
	"Private-Token", "Job-Token", // GitLab
	"X-Shopify-Access-Token",        // Shopify
	"Ocp-Apim-Subscription-Key",     // Azure API Management
	"Dd-Api-Key",                    // Datadog
	"X-Mbx-Apikey", "Cb-Access-Key", // Binance, Coinbase
	"X-Rapidapi-Key", "Xi-Api-Key", // RapidAPI, ElevenLabs
	"X-Figma-Token", "X-Vault-Token", // Figma, Vault
	"X-Subscription-Token",           // Brave
	"X-Cisco-Meraki-Api-Key",         // Meraki
	"Circle-Token", "X-Tableau-Auth", // CircleCI, Tableau
	"X-N8n-Api-Key", "X-Typesense-Api-Key", "X-Algolia-Api-Key",
}

// credentialOf returns what tells the customer of h apart from others, or "".
func credentialOf(h http.Header) string {
	if values := h["Authorization"]; len(values) > 0 {
		if account := accountOf(values[0]); account != "" {
			return account
		}
	}
	for _, name := range keyFields {
		if values := h[name]; len(values) > 0 && values[0] != "" {
			return name + ": " + values[0]
		}
	}
	return ""
}

// repeatedSchemes are those whose credential is the same in all requests of a customer.
var repeatedSchemes = map[string]bool{
	"basic": true, "bearer": true, "token": true, "apikey": true, "api-key": true, "key": true, "bot": true,
	"dpop": true, "geniekey": true, "ssws": true, "oauth": true, "zoho-oauthtoken": true, "klaviyo-api-key": true,
	"splunk": true,
}

// signedSchemes sign each request. Their value is the parameter that names the account, or
// "" if it is what precedes the signature after a colon.
var signedSchemes = map[string]string{
	"aws4-hmac-sha256": "credential", "aws4-ecdsa-p256-sha256": "credential", "goog4-rsa-sha256": "credential",
	"goog4-hmac-sha256": "credential", "acs3-hmac-sha256": "credential", "tc3-hmac-sha256": "credential",
	"hmac-sha256": "credential", "sdk-hmac-sha256": "access", "eg1-hmac-sha256": "client_token",
	"digest": "username", "oauth": "oauth_token", "hawk": "id", "mac": "id", "signature": "keyid",
	"aws": "", "goog1": "", "sharedkey": "", "sharedkeylite": "",
}

// shortestKey is longer than the name of any scheme, which may stand alone.
const shortestKey = 24

// accountOf returns the part of an Authorization field that stays the same in all requests
// of an account, or "".
func accountOf(authorization string) string {
	scheme, rest, found := strings.Cut(strings.TrimSpace(authorization), " ")
	scheme, rest = strings.ToLower(scheme), strings.TrimSpace(rest)
	if !found && len(scheme) >= shortestKey {
		return authorization // a key without a scheme, as Linear's and monday's
	}
	if rest == "" {
		return ""
	}
	if name, signed := signedSchemes[scheme]; signed {
		account := ""
		if name == "" {
			account, _, _ = strings.Cut(rest, ":")
		} else {
			account = parameter(rest, name)
			if name == "credential" {
				account, _, _ = strings.Cut(account, "/") // the rest is a date and what it is for
			}
		}
		if account != "" {
			return scheme + " " + account
		}
		if scheme != "oauth" || strings.Contains(rest, "=\"") {
			return ""
		}
	}
	if repeatedSchemes[scheme] {
		return scheme + " " + rest
	}
	return ""
}

// parameter returns the value of a parameter of that name, in lower case, among those that
// commas, semicolons, ampersands or spaces separate, or "".
func parameter(list, name string) string {
	for part := range strings.FieldsFuncSeq(list, func(r rune) bool { return strings.ContainsRune(",;& ", r) }) {
		key, value, found := strings.Cut(part, "=")
		if found && strings.EqualFold(strings.TrimSpace(key), name) {
			return strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return ""
}
