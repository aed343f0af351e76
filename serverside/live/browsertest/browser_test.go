package browsertest_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/testenv"
)

// browser is shared by all tests, because it starts slowly.
var browser struct {
	once   sync.Once
	ctx    context.Context
	cancel []context.CancelFunc
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, cancel := range browser.cancel {
		defer cancel()
	}
	if browser.ctx != nil {
		_ = chromedp.Cancel(browser.ctx) // waits until it has ended
	}
	os.Exit(code)
}

// started returns the browser, or skips the test.
func started(t testing.TB) context.Context {
	path := testenv.Program(t, "chromium", "chromium-browser", "google-chrome")
	browser.once.Do(func() {
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
			chromedp.WSURLReadTimeout(time.Minute),
			chromedp.NoSandbox) // root and most containers cannot have one, and the pages are our own
		allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, cancel := chromedp.NewContext(allocator)
		require.NoError(t, chromedp.Do(ctx))
		browser.ctx, browser.cancel = ctx, []context.CancelFunc{end, cancel}
	})
	require.NotNil(t, browser.ctx, "the browser did not start")
	return browser.ctx
}

// A tab is one page, and what was observed in it.
type tab struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	requests []string // URLs; guarded by mu
	faults   []string // errors, thrown or in the console, and policy violations; guarded by mu
}

// open opens a tab.
func open(t testing.TB) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(started(t))
	t.Cleanup(cancel)
	b := &tab{TB: t, ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, b.see))
	return b
}

func (b *tab) see(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError || e.Entry.Level == cdplog.EntryLevelWarning {
			b.faults = append(b.faults, fmt.Sprint(e.Entry.Source, ": ", e.Entry.Text, " ", e.Entry.URL))
		}
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, fmt.Sprint("thrown: ", e.ExceptionDetails.Text, " ", e.ExceptionDetails.LineNumber))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			b.faults = append(b.faults, fmt.Sprint("console: ", e.Type))
		}
	}
}

// seen returns what was observed in the tab.
func (b *tab) seen() (requests, faults []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.requests...), append([]string(nil), b.faults...)
}

// do runs actions.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b, chromedp.Do(ctx, actions...))
}

// patience is how long anything may take.
const patience = time.Minute

// run runs JavaScript.
func (b *tab) run(script string) {
	b.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](script))
}

// eval returns the value of a JavaScript expression.
func eval[T any](b *tab, expression string) T {
	b.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b, err, expression)
	return value
}

// text returns the text of an element.
func (b *tab) text(selector string) string {
	b.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%q).textContent", selector))
}

// await waits until a JavaScript expression is true.
func (b *tab) await(expression string) {
	b.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.Poll[chromedp.Void](expression,
		chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	if err != nil {
		_, faults := b.seen()
		b.Fatalf("%s: %v\n%s\n%s", expression, err, strings.Join(faults, "\n"), b.text("body"))
	}
}
