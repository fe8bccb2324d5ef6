// Package browsertest drives a headless Chromium in tests. A window fails its test on exceptions, messages of the
// console, refusals by a policy, and requests to elsewhere.
package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Patience is how long a test waits for what must come.
const Patience = time.Minute

var chromium struct {
	once sync.Once
	ctx  context.Context
	stop func()
	why  string // there is none
}

// Main runs the tests of a package, and ends the browser that they have started. It is for TestMain.
func Main(m *testing.M) {
	code := m.Run()
	if chromium.stop != nil {
		chromium.stop()
	}
	os.Exit(code)
}

// launch starts Chromium, once for all tests.
func launch() {
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		chromium.why = "no Chromium: install the package chromium"
		return
	}
	o := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(Patience))
	if os.Geteuid() == 0 {
		o = append(o, chromedp.NoSandbox)
	}
	allocator, endAllocator := chromedp.NewExecAllocator(context.Background(), o...)
	ctx, end := chromedp.NewContext(allocator)
	chromium.stop = func() {
		_ = chromedp.Cancel(ctx) // closes the browser and waits for it
		end()
		endAllocator()
	}
	if err := chromedp.Do(ctx); err != nil {
		chromium.why = fmt.Sprintf("Chromium does not start: %v", err)
		return
	}
	chromium.ctx = ctx
}

// Window is a window of its own, which shares nothing with others.
type Window struct {
	T   *testing.T // that fails; it may be set to that of a subtest
	Ctx context.Context

	allowed  func(url string) bool
	also     func(event any) string
	mu       sync.Mutex
	trouble  []string
	expected []string // what trouble may be about
}

// Open opens a window, which may request the addresses that are allowed and no others. also, if it is not nil, hears
// each event of the browser too, from another goroutine, and returns what is wrong with it, or nothing. Without
// Chromium the test is skipped.
func Open(t *testing.T, allowed func(url string) bool, also func(event any) string) *Window {
	t.Helper()
	chromium.once.Do(launch)
	if chromium.ctx == nil {
		t.Skip(chromium.why)
	}
	ctx, cancel := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext())
	ctx, cancelTime := context.WithTimeout(ctx, 10*Patience)
	w := &Window{T: t, Ctx: ctx, allowed: allowed, also: also}
	t.Cleanup(func() {
		cancelTime()
		cancel()
	})
	if err := errors.Join(chromedp.Listen(ctx, w.heard),
		called(chromedp.Call(ctx, network.Enable, network.EnableParams{})),
		called(chromedp.Call(ctx, cdplog.Enable, cdp.Empty{})),
		called(chromedp.Call(ctx, runtime.Enable, cdp.Empty{}))); err != nil {
		t.Fatal(err)
	}
	w.Look("light", 1280, 900)
	t.Cleanup(func() { w.Clean(t) })

	return w
}

// heard notes what should not happen.
func (w *Window) heard(event any) {
	note := func(format string, args ...any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.trouble = append(w.trouble, fmt.Sprintf(format, args...))
	}
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		note("exception: %+v %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *runtime.EventConsoleAPICalled:
		var text []string
		for _, a := range e.Args {
			text = append(text, a.Value.String()+a.Description)
		}
		note("console.%s: %s", e.Type, strings.Join(text, " "))
	case *cdplog.EventEntryAdded:
		note("log: %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	case *network.EventRequestWillBeSent:
		if u := strings.TrimPrefix(e.Request.URL, "blob:"); !w.allowed(u) && u != "about:blank" {
			note("request elsewhere: %s", u)
		}
	case *page.EventJavascriptDialogOpening:
		note("dialog: %s", e.Message)
	}
	if w.also != nil {
		if wrong := w.also(event); wrong != "" {
			note("%s", wrong)
		}
	}
}

// Clean fails the test if there was trouble that it has not expected.
func (w *Window) Clean(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()

next:
	for _, text := range w.trouble {
		for _, e := range w.expected {
			if strings.Contains(text, e) {
				continue next
			}
		}
		t.Errorf("the browser: %s", text)
	}
	w.trouble = nil
}

// Expect lets trouble pass that has text in it: Chromium logs each answer that is no success.
func (w *Window) Expect(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected = append(w.expected, text)
}

func called[R any](_ R, err error) error { return err }

// Run runs actions.
func (w *Window) Run(actions ...chromedp.Action[chromedp.Void]) {
	w.T.Helper()
	if err := chromedp.Do(w.Ctx, actions...); err != nil {
		w.T.Fatal(err)
	}
}

// Look sets the colours that the system prefers, light or dark, and the size of the window; below 500 it is a phone.
func (w *Window) Look(scheme string, width, height int64) {
	w.T.Helper()
	size := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1,
		Mobile: width < 500}
	media := emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	if err := errors.Join(called(chromedp.Call(w.Ctx, emulation.SetDeviceMetricsOverride, size)),
		called(chromedp.Call(w.Ctx, emulation.SetEmulatedMedia, media))); err != nil {
		w.T.Fatal(err)
	}
}

// Eval evaluates an expression, which may be a promise.
func Eval[V any](w *Window, expression string) V {
	w.T.Helper()
	v, err := chromedp.Run(w.Ctx, chromedp.Evaluate[V](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		w.T.Fatalf("%s: %v", expression, err)
	}

	return v
}

// Do runs a script and forgets its value.
func (w *Window) Do(script string) { w.T.Helper(); Eval[chromedp.Void](w, script) }

// Wait waits until a condition holds. The browser's own way to wait makes code of text, which the policy refuses.
func (w *Window) Wait(condition string) {
	w.T.Helper()

	for end := time.Now().Add(Patience); ; time.Sleep(15 * time.Millisecond) {
		ok, err := chromedp.Run(w.Ctx, chromedp.Evaluate[bool]("Boolean("+condition+")"))
		if ok {
			return
		}
		if err != nil && w.Ctx.Err() != nil || time.Now().After(end) {
			text := Eval[string](w, `location.href + "\n" + document.body.innerText.slice(0, 3000)`)
			w.T.Fatalf("waiting for %s: %v\n%s\n%q", condition, err, text, w.trouble)
		}
	}
}

// Shot writes a picture of the whole page to a file.
func (w *Window) Shot(name string) {
	w.T.Helper()
	w.Wait(`!document.getAnimations().some(a => a.playState === "running" && !a.effect.target?.matches("tr") &&
		a.effect.getTiming().iterations !== Infinity)`)
	png, err := chromedp.Run(w.Ctx, chromedp.FullScreenshot(100))
	if err != nil {
		w.T.Fatal(err)
	}
	if err := os.WriteFile(name, png, 0o644); err != nil {
		w.T.Fatal(err)
	}
}
