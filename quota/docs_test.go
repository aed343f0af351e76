package quota_test

import (
	"go/parser"
	"go/token"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
)

func algorithmsPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/algorithms.md")
	require.NoError(t, err)
	return string(page)
}

// What the page says of a bucket through time, done.
func TestTheTimelineOfThePageIsWhatABucketDoes(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| ([\dm.]+s) \| (\d+) \| (yes|no, for ([\d.]+s)) \| ([\d.]+) \|$`)
	rows := row.FindAllStringSubmatch(algorithmsPage(t), -1)
	require.Len(t, rows, 8)
	c := newCount(t, quota.PerMinute(100))
	duration := func(text string) time.Duration {
		d, err := time.ParseDuration(text)
		require.NoError(t, err)
		return d
	}
	for _, row := range rows {
		at, takes, verdict, wait, left := row[1], row[2], row[3], row[4], row[5]
		c.now = noon.Add(duration(at)).UnixMicro()
		n, err := strconv.ParseInt(takes, 10, 64)
		require.NoError(t, err)
		d := c.take(n)
		assert.Equal(t, verdict == "yes", d.Allowed, at)
		if wait != "" {
			assert.Equal(t, duration(wait), d.RetryAfter, at)
		}
		assert.Equal(t, left, c.left(), at)
	}
}

// left is what is left in a bucket, in units, to two places.
func (c *count) left() string {
	met := c.limit.Drain(c.bucket, c.now)
	return strings.TrimSuffix(big.NewRat(c.limit.Capacity()-met.Level, c.limit.Unit()).FloatString(2), ".00")
}

// No rate is rounded.
func TestARateIsTheQuotaInItsWindowExactly(t *testing.T) {
	for _, p := range []quota.Policy{quota.PerMinute(100), quota.PerSecond(3), quota.PerDay(99_991), {Quota: 7, Window: 13 * time.Hour, Burst: 2}} {
		l := compile(t, p)
		perTick := big.NewRat(l.Rate(), l.Unit())
		want := new(big.Rat).Mul(big.NewRat(p.Quota, int64(p.Window)), big.NewRat(int64(l.Tick()), 1))
		assert.Zero(t, want.Cmp(perTick), "%s: %v a tick, not %v", l.Name(), perTick, want)
		assert.Equal(t, l.AtOnce()*l.Unit(), l.Capacity(), l.Name())
	}
	assert.EqualValues(t, 100, compile(t, quota.PerMinute(100)).AtOnce())
}

// The page and the comments warn of what is admitted at worst, with the
// numbers that TestFixedWindowAdmitsAtWorstTwiceTheQuotaAtABoundary and
// TestTokenBucketAdmitsAtWorstTheBurstAndTheQuota find.
func TestTheDocumentationWarnsOfWhatIsAdmittedAtWorst(t *testing.T) {
	page := algorithmsPage(t)
	assert.Contains(t, page, "60 a minute are 60 as one minute ends and 60 as the next begins: 120 within two seconds")
	assert.Contains(t, page, "| 2·Q, at a boundary;")
	assert.Contains(t, page, "| B + Q |")
	for file, warning := range map[string]string{
		"fixedwindow.go": "up to 2·Quota in any\n// other time as long as a Window",
		"tokenbucket.go": "with the default Burst, which is Quota, it is up to 2·Quota in a Window",
	} {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Contains(t, string(source), warning)
	}
}

// Counting is of use without HTTP, as ExampleMemory_Take_worker shows.
func TestCountingDoesNotKnowOfHTTP(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range f.Imports {
			assert.NotRegexp(t, `^"net/|^"\w+\.\w+/`, spec.Path.Value, file)
		}
	}
}
