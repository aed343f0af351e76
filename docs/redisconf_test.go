package docs_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/daemon"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
)

// The passwords of redis.conf.
const (
	ofOperators = "change-this-one"
	ofLimiters  = "change-this-too"
)

// A database is a redis-server with a configuration file. It ends with its test.
type database struct {
	*redis.Client // logged in as the operators

	addr   string
	args   []string
	t      *testing.T
	daemon *daemon.Daemon
}

// documented starts a database with redis.conf as shipped.
func documented(t *testing.T) *database {
	t.Helper()
	file, err := filepath.Abs("redis.conf")
	require.NoError(t, err)
	return open(t, file)
}

func open(t *testing.T, file string) *database {
	t.Helper()
	port := strconv.Itoa(daemon.FreePort(t))
	d := &database{
		addr: net.JoinHostPort("127.0.0.1", port), t: t,
		args: []string{testenv.Redis(t), file, "--port", port, "--dir", t.TempDir()},
	}
	d.Client = d.as("default", ofOperators)
	t.Cleanup(func() { d.daemon.Kill() })
	d.start()
	return d
}

func (d *database) start() {
	d.t.Helper()
	d.daemon = started(d.t, func() *exec.Cmd { return exec.Command(d.args[0], d.args[1:]...) }, func() bool {
		return listens(d.addr) && d.Ping(context.Background()).Err() == nil
	})
}

// started starts a daemon. If that fails, perhaps because another process uses its port, it tries again for
// a minute.
func started(t *testing.T, command func() *exec.Cmd, ready func() bool) *daemon.Daemon {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		d, err := daemon.Start(command(), func(*daemon.Daemon) bool { return ready() })
		if err == nil {
			return d
		}
		require.Less(t, time.Since(begun), time.Minute, err)
	}
}

func listens(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// as returns a client that logs in as user.
func (d *database) as(user, password string) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: d.addr, Username: user, Password: password, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute,
	})
	d.t.Cleanup(func() { c.Close() })
	return c
}

// store returns a Store that logs in as the limiters.
func (d *database) store() *redisstore.Store { return d.patient(d.as("heed", ofLimiters)) }

// patient returns a Store that waits as long as a busy machine may take.
func (d *database) patient(client redis.UniversalClient) *redisstore.Store {
	return &redisstore.Store{Client: client, Timeout: time.Minute}
}

// settings returns the settings of redis.conf except the user, in order.
func settings(t *testing.T) (all [][2]string) {
	t.Helper()
	for _, line := range strings.Split(read(t, "redis.conf"), "\n") {
		name, value, found := strings.Cut(line, " ")
		if found && name != "#" && name != "user" {
			all = append(all, [2]string{name, strings.Trim(value, `"`)})
		}
	}
	require.NotEmpty(t, all)
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

func TestRedisDoesWhatTheConfigurationSays(t *testing.T) {
	d := documented(t)
	for _, s := range settings(t) {
		if s[0] == "port" { // the test has its own
			continue
		}
		want := s[1]
		if megabytes, ok := strings.CutSuffix(want, "mb"); ok {
			n, err := strconv.Atoi(megabytes)
			require.NoError(t, err)
			want = strconv.Itoa(n << 20)
		}
		got, err := d.ConfigGet(t.Context(), s[0]).Result()
		require.NoError(t, err)
		assert.Equal(t, map[string]string{s[0]: want}, got)
	}
	var major, minor int
	_, version, _ := strings.Cut(d.Info(t.Context(), "server").Val(), "redis_version:")
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	require.NoError(t, err)
	assert.True(t, major > 6 || major == 6 && minor >= 2, version)
	assert.ErrorContains(t, d.as("", "").Ping(t.Context()).Err(), "NOAUTH")
	assert.ErrorContains(t, d.as("heed", "guessed").Ping(t.Context()).Err(), "WRONGPASS")
}

// granted returns the commands that the user of redis.conf may use.
func granted(t *testing.T) (commands []string) {
	t.Helper()
	user := regexp.MustCompile(`(?m)^user heed .*`).FindString(read(t, "redis.conf"))
	for _, word := range strings.Fields(user) {
		if command, ok := strings.CutPrefix(word, "+"); ok {
			commands = append(commands, command)
		}
	}
	require.NotEmpty(t, commands)
	slices.Sort(commands)
	return commands
}

// The user of redis.conf may use all commands that heed needs, and no others.
func TestTheLimitersUserMayDoOnlyWhatItNeeds(t *testing.T) {
	d := documented(t)
	client := d.as("heed", ofLimiters)
	require.NoError(t, d.ConfigResetStat(t.Context()).Err())
	everything(t, client)
	older := redis.NewClient(&redis.Options{
		Addr: d.addr, Username: "heed", Password: ofLimiters, Protocol: 2, DB: 1, ClientName: "limiter",
		DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute,
	})
	defer older.Close()
	everything(t, older)

	assert.Empty(t, denied(t, d))
	used := commandsUsed(t, d)
	rarely := map[string]string{
		"hdel": "a script that gives back", "hstrlen": "a key that has limits", "ping": "a Board without messages",
		"cluster|slots": "a client of a Cluster", "command": "a client of a Cluster",
	}
	for _, command := range granted(t) {
		assert.True(t, slices.Contains(used, command) || rarely[command] != "", "%s is granted, and not used", command)
	}
	for _, forbidden := range [][]any{
		{"GET", "x"}, {"SET", "x", "1"}, {"KEYS", "*"}, {"FLUSHALL"}, {"CONFIG", "GET", "*"},
		{"SCRIPT", "FLUSH"}, {"ACL", "LIST"}, {"HSET", "other", "a", "1"}, {"HGETALL", "session:1"},
		{"PUBLISH", "other", "x"},
	} {
		assert.ErrorContains(t, client.Do(t.Context(), forbidden...).Err(), "NOPERM", "%v", forbidden)
	}
	err := client.Eval(t.Context(), "return redis.call('FLUSHALL')", nil).Err()
	assert.ErrorContains(t, err, "can't run this command")
}

// denied returns what the users of d were denied, except client|setinfo: from Redis 7.2 on,
// clients try to name their library, and ignore the error.
func denied(t *testing.T, d *database) (all []string) {
	t.Helper()
	log, err := d.Do(t.Context(), "ACL", "LOG").Slice()
	require.NoError(t, err)
	for _, entry := range log {
		if text := fmt.Sprint(entry); !strings.Contains(text, "client|setinfo") {
			all = append(all, text)
		}
	}
	return all
}

// commandsUsed returns the commands that d has executed, in scripts too.
func commandsUsed(t *testing.T, d *database) (used []string) {
	t.Helper()
	stats := d.Info(t.Context(), "commandstats").Val()
	for _, m := range regexp.MustCompile(`(?m)^cmdstat_([^:]+):`).FindAllStringSubmatch(stats, -1) {
		used = append(used, m[1])
	}
	return used
}

// everything uses client in every way in which heed uses Redis: Store, Gate, Lease, Budget,
// Board, Limits and Document.
func everything(t *testing.T, client *redis.Client) {
	t.Helper()
	s := &redisstore.Store{Client: client, Timeout: time.Minute, HoldTTL: 300 * time.Millisecond}
	count(t, s)
	hold(t, s)
	lease(t, s)
	retry(t, client)
	coolDown(t, client)
	configure(t, client)
	assert.Zero(t, s.Degraded())
	assert.Zero(t, s.Corrupt())
}

func count(t *testing.T, s *redisstore.Store) {
	t.Helper()
	for _, a := range []quota.Algorithm{
		quota.TokenBucket, quota.LeakyBucket, quota.FixedWindow, quota.SlidingWindow, quota.SlidingLog,
	} {
		limit := compile(t, quota.Policy{Name: a.String(), Quota: 2, Window: time.Hour, Algorithm: a})
		c := quota.Charge{Key: "ann", ID: "once", Limit: limit}
		_, err := s.Take(t.Context(), nil, c)
		require.NoError(t, err, a)
		c.ID = ""
		_, err = s.Peek(t.Context(), nil, c)
		require.NoError(t, err, a)
		require.NoError(t, s.Settle(t.Context(), c), a)
		_, _, _, err = s.Reserve(t.Context(), 2*time.Hour, c)
		require.NoError(t, err, a)
	}
	states, err := s.Inspect(t.Context(), "ann")
	require.NoError(t, err)
	assert.Len(t, states, 5)
	require.NoError(t, s.Reset(t.Context(), "ann"))
	states, err = s.Inspect(t.Context(), "ann")
	require.NoError(t, err)
	assert.Empty(t, states)
}

func hold(t *testing.T, s *redisstore.Store) {
	t.Helper()
	for begun := time.Now(); ; {
		require.Less(t, time.Since(begun), time.Minute)
		held, _, err := s.Acquire(t.Context(), "ann", 1, 1)
		require.NoError(t, err)
		if held == nil { // a Hold that was lost has not expired yet
			continue
		}
		time.Sleep(2 * s.HoldTTL) // it is renewed in this time
		other, d, err := s.Acquire(t.Context(), "ann", 1, 1)
		require.NoError(t, err)
		assert.Equal(t, other != nil, d.Allowed)
		if other == nil {
			held.Release()
			return
		}
		select { // a busy machine could not renew the first one
		case <-held.Lost():
		case <-time.After(time.Minute):
			require.Fail(t, "both have the only slot")
		}
		held.Release()
		other.Release()
	}
}

func lease(t *testing.T, s *redisstore.Store) {
	t.Helper()
	l := &redisstore.Lease{Store: s}
	c := quota.Charge{Key: "busy", Limit: compile(t, quota.PerSecond(100_000))}
	for range 2000 {
		ds, err := l.Take(t.Context(), nil, c)
		require.NoError(t, err)
		require.True(t, ds[0].Allowed)
	}
	require.NoError(t, l.Close(t.Context()))
}

func retry(t *testing.T, client *redis.Client) {
	t.Helper()
	b := &redisstore.Budget{
		Client: client, Key: "orders", Timeout: time.Minute,
		Degraded: func(err error) { assert.NoError(t, err) },
	}
	for range 20 {
		b.Deposit(t.Context(), "https://api.example.com")
	}
	require.True(t, b.Withdraw(t.Context(), "https://api.example.com"))
	b.Refund(t.Context(), "https://api.example.com")
	require.True(t, b.Withdraw(t.Context(), "https://api.example.com"))
}

// coolDown posts a cool-down on one Board, and waits on another until it begins and ends.
func coolDown(t *testing.T, client *redis.Client) {
	t.Helper()
	sender, receiver := board(client), board(client)
	defer sender.Close()
	defer receiver.Close()
	left := func(b *redisstore.Board) time.Duration {
		wait, _, err := b.Read(t.Context(), "https://api.example.com")
		assert.NoError(t, err)
		return wait
	}
	assert.Zero(t, left(receiver))
	received := false
	for begun := time.Now(); !received; { // a cool-down may end before it is read
		require.Less(t, time.Since(begun), time.Minute)
		err := sender.Post(t.Context(), "https://api.example.com", 400*time.Millisecond, 10*time.Millisecond)
		require.NoError(t, err)
		for i := 0; i < 50 && !received; i++ {
			time.Sleep(5 * time.Millisecond)
			received = left(receiver) > 0
		}
	}
	ended := func() bool { return left(receiver) == 0 && left(sender) == 0 }
	require.Eventually(t, ended, time.Minute, 10*time.Millisecond)
}

// configure reads what others write: the limits of keys, and rules.
func configure(t *testing.T, client *redis.Client) {
	t.Helper()
	limits := &redisstore.Limits{Client: client, Timeout: time.Minute}
	defer limits.Close()
	_, err := limits.Limits(t.Context(), "ann")
	require.NoError(t, err)
	_, err = (&redisstore.Document{Client: client, Timeout: time.Minute}).Read(t.Context())
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func board(client *redis.Client) *redisstore.Board {
	return &redisstore.Board{Client: client, Timeout: time.Minute}
}

func compile(t *testing.T, p quota.Policy) *quota.Limit {
	t.Helper()
	l, err := p.Compile()
	require.NoError(t, err)
	return l
}

// limited returns a handler with one limit, five an hour for each peer.
func limited(t *testing.T, store quota.Store, mode serverside.FailureMode) http.Handler {
	t.Helper()
	l, err := serverside.New(serverside.Config{
		Store: store, StoreTimeout: time.Minute, OnStoreError: mode, Audit: func(serverside.Event) {},
		Rules: []serverside.Rule{{Name: "login", Policies: []quota.Policy{quota.PerHour(5)}}},
	})
	require.NoError(t, err)
	return l.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

func ask(h http.Handler, peer string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/login", nil)
	r.RemoteAddr = peer + ":1234"
	h.ServeHTTP(w, r)
	return w
}

// statuses returns the statuses of n requests from one peer.
func statuses(h http.Handler, peer string, n int) (codes []int) {
	for range n {
		codes = append(codes, ask(h, peer).Code)
	}
	return codes
}

// flood fills d with a hundred thousand made-up subjects, and returns Redis' first error. They
// owe little, so they expire before a client that is denied.
func flood(t *testing.T, d *database) error {
	t.Helper()
	const fill = `for i = 1, 1000 do
		local key = 'heed:quota:2:' .. ARGV[1] .. ':' .. i
		redis.call('HSET', key, 'login/1h', '0123456789abcdef')
		redis.call('PEXPIRE', key, 600000)
	end
	return 1`
	for i := range 100 {
		if err := d.Eval(t.Context(), fill, nil, i).Err(); err != nil {
			return err
		}
	}
	return nil
}

// squeeze leaves d two MiB of memory.
func squeeze(t *testing.T, d *database, policy string) {
	t.Helper()
	require.NoError(t, d.ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
	require.NoError(t, d.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(memoryOf(t, d)+2<<20)).Err())
}

// memoryOf returns the memory that d uses, in bytes.
func memoryOf(t *testing.T, d *database) (bytes int) {
	t.Helper()
	_, used, found := strings.Cut(d.Info(t.Context(), "memory").Val(), "used_memory:")
	require.True(t, found)
	_, err := fmt.Sscan(used, &bytes)
	require.NoError(t, err)
	return bytes
}

// With allkeys-lru, an attacker who makes up subjects gets the denied key evicted. With the
// policy of redis.conf that cannot happen.
func TestAFloodOfSubjectsIsNoWayAroundALimit(t *testing.T) {
	d := documented(t)
	for policy, want := range map[string]struct {
		full  bool
		admit int
	}{"allkeys-lru": {false, 200}, "volatile-ttl": {false, 429}, "noeviction": {true, 429}} {
		require.NoError(t, d.FlushAll(t.Context()).Err())
		store := d.store()
		store.AlwaysAsk = true
		victim := limited(t, store, serverside.FailClosed)
		require.Equal(t, []int{200, 200, 200, 200, 200, 429}, statuses(victim, "192.0.2.1", 6), policy)
		squeeze(t, d, policy)
		err := flood(t, d)
		for want.admit == 200 && d.Exists(t.Context(), "heed:quota:2:192.0.2.1").Val() > 0 {
			err = flood(t, d) // Redis evicts the oldest of a sample
		}
		if want.full {
			require.ErrorContains(t, err, "OOM", policy)
			require.NoError(t, d.ConfigSet(t.Context(), "maxmemory", "256mb").Err())
		} else {
			require.NoError(t, err, policy)
		}
		assert.Equal(t, want.admit, ask(victim, "192.0.2.1").Code, policy)
	}
}

// For limiters a full Redis that evicts nothing is a lost Redis.
func TestAFullRedisIsALostRedis(t *testing.T) {
	d := documented(t)
	squeeze(t, d, "noeviction")
	require.ErrorContains(t, flood(t, d), "OOM")
	for mode, want := range map[serverside.FailureMode][]int{
		serverside.FailOpen:   {200, 200, 200, 200, 200, 200, 200},
		serverside.FailClosed: {503, 503, 503, 503, 503, 503, 503},
		serverside.FailLocal:  {200, 200, 200, 200, 200, 429, 429},
	} {
		h := limited(t, d.store(), mode)
		assert.Equal(t, want, statuses(h, "192.0.2.1", 7), mode)
		told := ask(h, "192.0.2.1").Header().Get("X-RateLimit-Limit") != ""
		assert.Equal(t, mode == serverside.FailLocal, told, "no fields without counts")
	}
	closed := limited(t, d.store(), serverside.FailClosed)
	require.Equal(t, 503, ask(closed, "192.0.2.1").Code)
	require.NoError(t, d.ConfigSet(t.Context(), "maxmemory", "256mb").Err())
	assert.Equal(t, 200, ask(closed, "192.0.2.1").Code, "it recovers by itself")
}

func TestUsedQuotaSurvivesARestartOfRedis(t *testing.T) {
	d := documented(t)
	h := limited(t, d.store(), serverside.FailClosed)
	require.Equal(t, []int{200, 200, 200}, statuses(h, "192.0.2.1", 3))
	d.Shutdown(t.Context()) // returns when the server has ended
	d.daemon.Kill()
	d.start()
	again := limited(t, d.store(), serverside.FailClosed)
	assert.Equal(t, []int{200, 200, 429}, statuses(again, "192.0.2.1", 3))
}

// A process that always asks Redis admits a key at once after a reset, others at most a second
// later. The quota itself would be back in an hour.
func TestStoreResetAdmitsAKeyAgain(t *testing.T) {
	d := documented(t)
	for _, always := range []bool{true, false} {
		for _, reset := range []func() error{
			func() error { return d.store().Reset(t.Context(), "192.0.2.1") },
			func() error { return d.Unlink(t.Context(), "heed:quota:2:192.0.2.1").Err() },
		} {
			s := d.store()
			s.AlwaysAsk = always
			h := limited(t, s, serverside.FailClosed)
			require.Equal(t, []int{200, 200, 200, 200, 200, 429}, statuses(h, "192.0.2.1", 6))
			require.NoError(t, reset())
			if always {
				assert.Equal(t, 200, ask(h, "192.0.2.1").Code)
			} else {
				admitted := func() bool { return ask(h, "192.0.2.1").Code == 200 }
				assert.Eventually(t, admitted, time.Minute, 100*time.Millisecond)
			}
			require.NoError(t, d.store().Reset(t.Context(), "192.0.2.1"))
		}
	}
}

// All memory counts that maxmemory bounds.
func TestASubjectTakesAsMuchMemoryAsThePageSays(t *testing.T) {
	d := documented(t)
	s := d.store()
	c := quota.Charge{Limit: compile(t, quota.Policy{Name: "api/1h", Quota: 100, Window: time.Hour})}
	before := memoryOf(t, d)
	const subjects = 32768 // fills Redis' table of names
	var all sync.WaitGroup
	for first := range 64 {
		all.Go(func() {
			c := c
			c.N = 100 // expires in an hour
			for i := first; i < subjects; i += 64 {
				c.Key = fmt.Sprintf("key:198.51.%d.%d", 100+i>>8, 100+i&0xff)
				_, err := s.Take(t.Context(), nil, c)
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, subjects, d.DBSize(t.Context()).Val())
	each := float64(memoryOf(t, d)-before) / subjects
	t.Logf("%.0f bytes each", each)
	assert.InDelta(t, 235, each, 25)
}

// The lines for TLS are uncommented, and redisstore.FromEnv connects.
func TestTheConfigurationsTLSWorks(t *testing.T) {
	if os.Getenv("OPERATIONS_TLS") != "" { // this process reads SSL_CERT_FILE only once
		s, err := redisstore.FromEnv()
		require.NoError(t, err)
		defer s.Client.Close()
		h := limited(t, s, serverside.FailClosed)
		assert.Equal(t, []int{200, 200, 200, 200, 200, 429}, statuses(h, "192.0.2.1", 6))
		return
	}
	dir, port := t.TempDir(), strconv.Itoa(daemon.FreePort(t))
	conf := strings.ReplaceAll(read(t, "redis.conf"), "/etc/redis/tls", dir)
	conf = regexp.MustCompile(`(?m)^# (port|tls-)`).ReplaceAllString(conf, "$1")
	conf = strings.Replace(conf, "\nport 6379\n", "\n", 1)
	conf = strings.Replace(conf, "tls-port 6379", "tls-port "+port, 1)
	certify(t, dir)
	file := filepath.Join(dir, "redis.conf")
	require.NoError(t, os.WriteFile(file, []byte(conf), 0o600))
	d := started(t, func() *exec.Cmd { return exec.Command(testenv.Redis(t), file, "--dir", dir) },
		func() bool { return listens("127.0.0.1:" + port) })
	defer d.Kill()

	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), "OPERATIONS_TLS=true", "SSL_CERT_FILE="+filepath.Join(dir, "ca.crt"),
		"REDIS_URL=rediss://heed:"+ofLimiters+"@127.0.0.1:"+port+"/0", "REDIS_TLS=", "REDIS_TIMEOUT=1m",
		"GORACE=atexit_sleep_ms=0") // without this, the race detector waits a second at exit
	out, err := child.CombinedOutput()
	assert.NoError(t, err, string(out))
	assert.Contains(t, string(out), "--- PASS: "+t.Name())
	plain := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:" + port, Username: "heed", Password: ofLimiters, MaxRetries: -1,
	})
	defer plain.Close()
	assert.Error(t, plain.Ping(t.Context()).Err())
}

// certify writes a self-signed certificate for the Redis on this machine.
func certify(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{
		"ca.crt":    {Type: "CERTIFICATE", Bytes: certificate},
		"redis.crt": {Type: "CERTIFICATE", Bytes: certificate},
		"redis.key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
}
