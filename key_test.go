package heed_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/testenv"
)

func getWith(t *testing.T, fields ...string) *http.Request {
	req := get(t.Context())
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	return req
}

// Requests of one customer share a cool-down; requests of others do not wait.
func TestCoolDownsAreKeyedByCredential(t *testing.T) {
	const auth = "Authorization"
	for name, c := range map[string]struct {
		first, second []string
		shared        bool
	}{
		"bearer":          {[]string{auth, "Bearer a"}, []string{auth, "Bearer b"}, false},
		"the same bearer": {[]string{auth, "Bearer a"}, []string{auth, "bearer a"}, true},
		"basic":           {[]string{auth, "Basic YTpi"}, []string{auth, "Basic Yjph"}, false},
		"token":           {[]string{auth, "token a"}, []string{auth, "token b"}, false},
		"a key alone": {[]string{auth, "lin_api_0123456789abcdef01"},
			[]string{auth, "lin_api_0123456789abcdef02"}, false},
		"X-Api-Key":      {[]string{"X-Api-Key", "a"}, []string{"X-Api-Key", "b"}, false},
		"Private-Token":  {[]string{"Private-Token", "a"}, []string{"Private-Token", "b"}, false},
		"X-Goog-Api-Key": {[]string{"X-Goog-Api-Key", "a"}, []string{"X-Goog-Api-Key", "b"}, false},
		"one and none":   {[]string{"X-Api-Key", "a"}, nil, false},
		"none and one":   {nil, []string{auth, "Bearer a"}, false},
		"none":           {nil, nil, true},
		"a key that changes, signed": {[]string{auth,
			"AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=aa"},
			[]string{auth,
				"AWS4-HMAC-SHA256 Credential=AKID/20260102/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=bb"}, true},
		"two accounts that sign": {[]string{auth,
			"AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/s3/aws4_request, Signature=aa"},
			[]string{auth, "AWS4-HMAC-SHA256 Credential=BKID/20260101/us-east-1/s3/aws4_request, Signature=aa"}, false},
		"digest": {[]string{auth, `Digest username="ann", nonce="1", response="x"`},
			[]string{auth, `Digest username="ann", nonce="2", response="y"`}, true},
		"digest of two": {[]string{auth, `Digest username="ann", nonce="1"`},
			[]string{auth, `Digest username="bob", nonce="1"`}, false},
		"OAuth 1.0": {[]string{auth, `OAuth oauth_nonce="1", oauth_token="t", oauth_signature="x"`},
			[]string{auth, `OAuth oauth_nonce="2", oauth_token="t", oauth_signature="y"`}, true},
		"OAuth 1.0 of two": {[]string{auth, `OAuth oauth_nonce="1", oauth_token="t"`},
			[]string{auth, `OAuth oauth_nonce="1", oauth_token="u"`}, false},
		"Hawk": {[]string{auth, `Hawk id="a", ts="1", mac="x"`},
			[]string{auth, `Hawk id="a", ts="2", mac="y"`}, true},
		"SharedKey": {[]string{auth, "SharedKey account:c2ln"}, []string{auth, "SharedKey account:b3Ro"},
			true},
		"SharedKey of two":       {[]string{auth, "SharedKey account:c2ln"}, []string{auth, "SharedKey other:c2ln"}, false},
		"an unknown scheme":      {[]string{auth, "Sign-It 123"}, []string{auth, "Sign-It 456"}, true},
		"a scheme alone":         {[]string{auth, "Negotiate"}, []string{auth, "NTLM"}, true},
		"signed, and no account": {[]string{auth, "Digest response=\"x\""}, []string{auth, "Digest response=\"y\""}, true},
		"a cookie":               {[]string{"Cookie", "s=1"}, []string{"Cookie", "s=2"}, true},
		"a JWT for each request": {[]string{auth, "Bearer " + jwt(`"sub":"a"`, 1)},
			[]string{auth, "Bearer " + jwt(`"sub":"a"`, 2)}, true},
		"JWTs of two": {[]string{auth, "Bearer " + jwt(`"sub":"a"`, 1)},
			[]string{auth, "Bearer " + jwt(`"sub":"b"`, 1)}, false},
		"a JWT for DPoP, renewed": {[]string{auth, "DPoP " + jwt(`"sub":"a"`, 1)},
			[]string{auth, "DPoP " + jwt(`"sub":"a"`, 2)}, true},
		"JWTs in another field": {[]string{"X-Api-Key", jwt(`"sub":"a"`, 1)},
			[]string{"X-Api-Key", jwt(`"sub":"a"`, 2)}, false},
		"a key beside an unknown": {[]string{auth, "Sign-It 1", "X-Api-Key", "a"},
			[]string{auth, "Sign-It 2", "X-Api-Key", "a"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &heed.Transport{Base: newScript(throttle("30"), ok), Retry: heed.RetryPolicy{MaxAttempts: 1}}
				assert.Equal(t, 429, status(t, tr, getWith(t, c.first...)))
				start := time.Now()
				assert.Equal(t, 200, status(t, tr, getWith(t, c.second...)))
				assert.Equal(t, c.shared, time.Since(start) >= 30*time.Second)
			})
		})
	}
}

// jwt returns a token with the claims, and others that differ in each token, as its signature does.
func jwt(claims string, n int) string {
	return jwtOf(`{"alg":"ES256"}`, `{"iat":#,`+claims+`,"exp":#,"jti":"#"}`, n)
}

// jwtOf returns a token of header and claims with n instead of #.
func jwtOf(header, claims string, n int) string {
	part := func(text string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(strings.ReplaceAll(text, "#", strconv.Itoa(n))))
	}
	return part(header) + "." + part(claims) + "." + part("a signature #")
}

func keyOf(token string) string {
	header := http.Header{"Authorization": {"Bearer " + token}}
	return heed.ByCredential(&http.Request{URL: &url.URL{Scheme: "https", Host: "api.example.com"}, Header: header})
}

func TestAJWTCountsByItsHolderOrAsAWhole(t *testing.T) {
	const alg, kid = `{"alg":"ES256"}`, `{"alg":"ES256","kid":"a"}`
	lists := strings.Repeat("[", 4000) + strings.Repeat("]", 4000)
	filler := strings.Repeat("x", 8<<10-len(`{"sub":"a","n":1,"x":""}`))
	for name, c := range map[string]struct {
		header, claims string
		byHolder       bool
	}{
		"sub":                {alg, `{"sub":"a","jti":"#"}`, true},
		"azp":                {alg, `{"azp":"a","jti":"#"}`, true},
		"client_id":          {alg, `{"client_id":"a","jti":"#"}`, true},
		"appid":              {alg, `{"appid":"a","jti":"#"}`, true},
		"cid":                {alg, `{"cid":"a","jti":"#"}`, true},
		"kid":                {kid, `{"jti":"#"}`, true},
		"kid without claims": {kid, `{}`, true},
		"issuer and tenant":  {alg, `{"iss":"a","tid":"a","jti":"#"}`, false},
		"null and empty":     {alg, `{"sub":null,"azp":"","jti":"#"}`, false},
		"null beside kid":    {kid, `{"sub":null,"jti":"#"}`, true},
		"a number":           {alg, `{"sub":-1E999999,"jti":"#"}`, true},
		"neither":            {kid, `{"sub":true,"jti":"#"}`, false},
		"a list":             {kid, `{"sub":["a"],"jti":"#"}`, false},
		"an object":          {kid, `{"sub":{"x":1},"jti":"#"}`, false},
		"an object as kid":   {`{"alg":"ES256","kid":{}}`, `{"sub":"a","jti":"#"}`, false},
		"spaces":             {"\n{ \"alg\" : \"ES256\" }", " { \"n\" : # ,\r\n\t\"sub\" : \"a\" } ", true},
		"in other values":    {alg, `{"x":"}\\\",{:","sub":"a","y":[{"sub":#},[],"]"],"act":{"sub":"#","z":{}}}`, true},
		"deep":               {alg, `{"x":` + lists + `,"sub":"a","n":#}`, true},
		"8 KiB":              {alg, `{"sub":"a","n":#,"x":"` + filler + `"}`, true},
		"more than 8 KiB":    {alg, `{"sub":"a","n":#,"x":"` + filler + `x"}`, false},
		"a large header":     {`{"alg":"ES256","x":"` + filler + filler + `"}`, `{"sub":"a","jti":"#"}`, false},
		"in upper case":      {alg, `{"SUB":"a","Azp":"a","jti":"#"}`, false},
		"twice":              {alg, `{"sub":"a","jti":"#","sub":"b"}`, false},
		"a name in escapes":  {alg, `{"sub":"a","jti":"#","su\u0062":"b"}`, false},
		"no alg":             {`{"kid":"a"}`, `{"sub":"a","jti":"#"}`, false},
		"alg is a number":    {`{"alg":1}`, `{"sub":"a","jti":"#"}`, false},
		"header is a list":   {`[{"alg":"ES256"}]`, `{"sub":"a","jti":"#"}`, false},
		"no header":          {``, `{"sub":"a","jti":"#"}`, false},
		"claims are a list":  {kid, `[{"sub":"a","jti":"#"}]`, false},
		"claims are null":    {kid, `null`, false},
		"no claims":          {kid, ``, false},
		"invalid JSON":       {alg, `{"sub":"a","jti":#,}`, false},
		"more after it":      {alg, `{"sub":"a","jti":#} {}`, false},
	} {
		assert.Equal(t, c.byHolder, keyOf(jwtOf(c.header, c.claims, 1)) == keyOf(jwtOf(c.header, c.claims, 2)), name)
	}
}

// RFC 7515 sections 2 and 7.1.
func TestWhatIsSpeltUnlikeAJWTCountsAsAWhole(t *testing.T) {
	for name, respell := range map[string]func(header, claims, signature string) string{
		"two parts":             func(h, c, _ string) string { return h + "." + c },
		"four parts":            func(h, c, s string) string { return h + "." + c + "." + s + ".x" },
		"five parts, encrypted": func(h, c, s string) string { return h + "." + c + "." + s + ".x.y" },
		"padding":               func(h, c, s string) string { return h + "." + c + "=." + s },
		"base64, not base64url": func(h, c, s string) string { return h + "." + strings.ReplaceAll(c, "_", "/") + "." + s },
		"bits to spare":         func(h, c, s string) string { return h + "." + strings.TrimSuffix(c, "0") + "1." + s },
	} {
		token := func(n int) string {
			parts := strings.Split(jwtOf(`{"alg":"ES256"}`, `{"jti":"#","sub":"???"}`, n), ".")
			require.Regexp(t, "_.*0$", parts[1])
			respelt := respell(parts[0], parts[1], parts[2])
			require.NotEqual(t, strings.Join(parts, "."), respelt)
			return respelt
		}
		assert.NotEqual(t, keyOf(token(1)), keyOf(token(2)), name)
	}
}

func TestJWTsOfTwoHoldersHaveTwoKeys(t *testing.T) {
	holders := map[string]string{}
	for _, claims := range []string{
		`"sub":"a"`, `"sub":"b"`, `"sub":"A"`, `"sub":1`, `"sub":"1"`, `"sub":1e400`, `"sub":1e401`,
		`"azp":"a"`, `"client_id":"a"`, `"appid":"a"`, `"cid":"a"`,
		`"sub":"a","iss":"a"`, `"sub":"a","iss":"b"`, `"sub":"a","tid":"a"`, `"sub":"a","tid":"b"`,
		`"sub":"a","azp":"a"`, `"sub":"a","azp":"b"`, `"sub":"a","cid":"a"`, `"sub":"a","azp":"a","cid":"b"`,
		`"sub":"a,b"`, `"sub":"a\",\"b"`, `"sub":"a\\","azp":"b"`, `"sub":"a\\\",","azp":"b"`,
		`"sub":"a\u0000b"`, `"sub":"a\u0000"`,
		"\"sub\":\"\xff\"", "\"sub\":\"\xfe\"", `"sub":"\ud800"`, `"sub":"\ud801"`,
	} {
		for _, header := range []string{`{"alg":"ES256"}`, `{"alg":"ES256","kid":"a"}`, `{"kid":"b","alg":"ES256"}`} {
			holder := header + claims
			key := keyOf(jwtOf(header, `{`+claims+`,"jti":"#"}`, 1))
			assert.Equal(t, key, keyOf(jwtOf(header, `{`+claims+`,"jti":"#"}`, 2)), holder)
			assert.Empty(t, holders[key], holder)
			holders[key] = holder
		}
	}
}

func FuzzJWT(f *testing.F) {
	f.Add(`{"alg":"ES256"}`, `{"sub":"a","jti":"#"}`, "a", "b", "c")
	f.Add(`{"alg":"ES256","kid":"1"}`, `{"iss":"a\"","x":[{}],"n":1e9}`, "a\x00b", "\"", "\\")
	f.Fuzz(func(t *testing.T, header, claims, sub, other, note string) {
		token := jwtOf(header, claims, 1)
		require.Equal(t, keyOf(token), keyOf(token))
		if keyOf(token) == keyOf(token+"x") { // the signature makes no difference
			var h, c map[string]json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(header, "#", "1")), &h))
			require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(claims, "#", "1")), &c))
			require.NoError(t, json.Unmarshal(h["alg"], new(string)))
			require.NotEmpty(t, slices.Concat(h["kid"], c["sub"], c["azp"], c["client_id"], c["appid"], c["cid"]))
		}

		// Tokens that an issuer has made.
		quoted := func(text string) string {
			text = strings.ReplaceAll(text, "#", "")
			b, err := json.Marshal(text[:min(1000, len(text))])
			require.NoError(t, err)
			return string(b)
		}
		made := func(sub string, n int) string {
			return jwtOf(`{"alg":"ES256"}`, `{"iss":`+quoted(note)+`,"sub":`+quoted(sub)+`,"exp":#,"jti":"#"}`, n)
		}
		if quoted(sub) != `""` && quoted(other) != `""` {
			require.Equal(t, quoted(sub) == quoted(other), keyOf(made(sub, 1)) == keyOf(made(other, 2)))
		}
	})
}

// The limit may be the host's, or only the context may know the customer.
func TestACustomKeyDecidesWhichRequestsWait(t *testing.T) {
	type customer struct{}
	byContext := func(req *http.Request) string {
		name, _ := req.Context().Value(customer{}).(string)
		return heed.ByHost(req) + " " + name
	}
	for name, c := range map[string]struct {
		key    func(*http.Request) string
		shared bool
	}{"of the host": {heed.ByHost, true}, "of the context": {byContext, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				of := func(name string) *http.Request {
					req := getWith(t, "Authorization", "Bearer "+name)
					return req.WithContext(context.WithValue(req.Context(), customer{}, name))
				}
				tr := &heed.Transport{Base: newScript(throttle("30"), ok), Key: c.key, Retry: heed.RetryPolicy{MaxAttempts: 1}}
				assert.Equal(t, 429, status(t, tr, of("a")))
				start := time.Now()
				assert.Equal(t, 200, status(t, tr, of("b")))
				assert.Equal(t, c.shared, time.Since(start) >= 30*time.Second)
			})
		})
	}
}

// One customer has a cool-down of a day.
func TestOneCustomersCoolDownDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{Base: newScript(throttle("86400"), ok)}
		assert.Equal(t, 429, status(t, tr, getWith(t, "Authorization", "Bearer evil")))
		for range 100 {
			start := time.Now()
			assert.Equal(t, 200, status(t, tr, getWith(t, "Authorization", "Bearer good")))
			assert.Zero(t, time.Since(start))
		}
		_, err := tr.RoundTrip(getWith(t, "Authorization", "Bearer evil"))
		assert.ErrorAs(t, err, new(*heed.OverdueError))
		assert.NotContains(t, err.Error(), "evil")
	})
}

// By their claims, the forged token and the victim's have one holder.
func TestAForgedTokenDelaysNobodyElseInAReverseProxy(t *testing.T) {
	victims, forged := jwt(`"iss":"a","sub":"victim"`, 1), jwt(`"iss":"a","sub":"victim"`, 2)
	require.Equal(t, keyOf(victims), keyOf(forged))
	var asked atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") == "Bearer "+forged {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer api.Close()
	target, err := url.Parse(api.URL)
	require.NoError(t, err)
	proxy := newProxy(target, map[string]string{"s1": "mallory", "s2": "victim"})
	send := func(session, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/", nil)
		r.AddCookie(&http.Cookie{Name: "session", Value: session})
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		proxy.ServeHTTP(w, r)
		return w
	}
	for range 3 {
		w := send("s1", forged)
		assert.Equal(t, 429, w.Code)
		assert.Regexp(t, "^3[56]..$", w.Header().Get("Retry-After"))
	}
	assert.EqualValues(t, 1, asked.Load(), "heed has refused the others")
	for range 10 {
		assert.Equal(t, 200, send("s2", victims).Code)
	}
	assert.EqualValues(t, 11, asked.Load())
	assert.Equal(t, 401, send("s3", victims).Code)
}

func TestTheReverseProxyNeverSendsRetryAfterZero(t *testing.T) {
	w := httptest.NewRecorder()
	passOn(w, nil, &heed.OverdueError{})
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
}

// A server admits ten a second, and sends no hint. Medians of five runs: in one of twenty, all four
// attempts of some call are refused, whatever its token.
func TestATokenForEachRequestIsRefusedNoMoreThanOne(t *testing.T) {
	testenv.NeedLong(t)
	run := func(token func() string) (refused float64, lost int) {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(bucket(10, 10))
			g.latency = 30 * time.Millisecond
			tr := &heed.Transport{Base: g}
			_, lost = work(t, roundTripFunc(func(req *http.Request) (*http.Response, error) {
				req.Header.Set("Authorization", "Bearer "+token())
				return tr.RoundTrip(req)
			}), 40, 0, time.Minute)
			refused = 100 * float64(g.refused) / float64(g.sent)
		})
		return refused, lost
	}
	medians := func(token func() string) (float64, int) {
		refused, lost := make([]float64, 5), make([]int, 5)
		for i := range refused {
			refused[i], lost[i] = run(token)
		}
		slices.Sort(refused)
		slices.Sort(lost)
		t.Logf("refused: %.1f %%, lost: %d", refused, lost)
		return refused[2], lost[2]
	}
	var n atomic.Int64
	one, _ := medians(func() string { return "s3cret" })
	many, lost := medians(func() string { return jwt(`"iss":"cdp","sub":"acme"`, int(n.Add(1))) })
	assert.Zero(t, lost)
	assert.LessOrEqual(t, many, 18.0)
	assert.LessOrEqual(t, many, one+2)
}
