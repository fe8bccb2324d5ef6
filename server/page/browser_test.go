package page_test

import (
	"cmp"
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
	"github.com/chromedp/chromedp/kb"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

var chromium struct {
	once sync.Once
	ctx  context.Context
	stop func()
	why  string // there is none
}

func TestMain(m *testing.M) {
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
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(patience))
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

// window is a window of its own, which shares nothing with others.
type window struct {
	t     *testing.T // of the step
	whole *testing.T
	s     *server
	ctx   context.Context

	mu       sync.Mutex
	trouble  []string // exceptions, messages of the console, refusals by the policy, requests elsewhere
	expected []string // what trouble may be about
	resumed  []string // Last-Event-IDs that it has sent
}

func open(t *testing.T, s *server) *window {
	t.Helper()
	chromium.once.Do(launch)
	if chromium.ctx == nil {
		t.Skip(chromium.why)
	}
	ctx, cancel := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext())
	ctx, cancelTime := context.WithTimeout(ctx, 10*patience)
	b := &window{t: t, whole: t, s: s, ctx: ctx}
	t.Cleanup(func() {
		cancelTime()
		cancel()
	})
	if err := errors.Join(chromedp.Listen(ctx, b.heard),
		called(chromedp.Call(ctx, network.Enable, network.EnableParams{})),
		called(chromedp.Call(ctx, cdplog.Enable, cdp.Empty{})),
		called(chromedp.Call(ctx, runtime.Enable, cdp.Empty{}))); err != nil {
		t.Fatal(err)
	}
	b.look("light", 1280, 900)
	t.Cleanup(func() { b.clean(t) })
	return b
}

// heard notes what should not happen.
func (b *window) heard(event any) {
	note := func(format string, args ...any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.trouble = append(b.trouble, fmt.Sprintf(format, args...))
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
		for name, value := range e.Request.Headers {
			if strings.EqualFold(name, "Last-Event-ID") {
				b.mu.Lock()
				b.resumed = append(b.resumed, fmt.Sprint(value))
				b.mu.Unlock()
			}
		}
		if strings.Contains(e.Request.URL, b.s.token) {
			note("the token is in an address: %s", e.Request.URL)
		}
		u := strings.TrimPrefix(e.Request.URL, "blob:")
		if !strings.HasPrefix(u, b.s.http.URL+"/") && u != "about:blank" {
			note("request elsewhere: %s", u)
		}
	case *page.EventJavascriptDialogOpening:
		note("dialog: %s", e.Message)
	}
}

// clean fails the test if there was trouble that it has not expected.
func (b *window) clean(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
next:
	for _, text := range b.trouble {
		for _, e := range b.expected {
			if strings.Contains(text, e) {
				continue next
			}
		}
		t.Errorf("the browser: %s", text)
	}
	b.trouble = nil
}

// expect lets trouble pass that has text in it: Chromium logs each answer that is no success.
func (b *window) expect(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, text)
}

func called[R any](_ R, err error) error { return err }

func (b *window) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *window) look(scheme string, width, height int64) {
	b.t.Helper()
	size := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1,
		Mobile: width < 500}
	media := emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	if err := errors.Join(called(chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, size)),
		called(chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media))); err != nil {
		b.t.Fatal(err)
	}
}

// eval evaluates an expression, which may be a promise.
func eval[V any](b *window, expression string) V {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[V](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// do runs a script and forgets its value.
func (b *window) do(script string) { b.t.Helper(); eval[chromedp.Void](b, script) }

// wait waits until a condition holds. The browser's own way to wait makes code of text, which the policy refuses.
func (b *window) wait(condition string) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(15 * time.Millisecond) {
		ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+condition+")"))
		if ok {
			return
		}
		if err != nil && b.ctx.Err() != nil || time.Now().After(end) {
			text := eval[string](b, `location.href + "\n" + document.body.innerText.slice(0, 3000)`)
			b.t.Fatalf("waiting for %s: %v\n%s\n%q", condition, err, text, b.trouble)
		}
	}
}

// text waits until a text is in what an element shows.
func (b *window) text(selector, text string) {
	b.t.Helper()
	b.wait(fmt.Sprintf("[...document.querySelectorAll(%q)].some(e => e.innerText.includes(%q))", selector, text))
}

// press clicks the button, or the link, of that name, or label.
func (b *window) press(name string) {
	b.t.Helper()
	find := fmt.Sprintf(`[...(document.querySelector("dialog[open]") ?? document).querySelectorAll("button, a")].find(e =>
		!e.disabled && !e.hasAttribute("aria-busy") && e.checkVisibility() &&
		(e.getAttribute("aria-label") ?? e.innerText.trim()) === %q)`, name)
	b.wait(find)
	b.do(find + ".click()")
}

// fill writes into the field of that label.
func (b *window) fill(label, text string) {
	b.t.Helper()
	find := fmt.Sprintf(`[...(document.querySelector("dialog[open]") ?? document).querySelectorAll("label")].find(e =>
		e.innerText.trim().startsWith(%q))?.control`, label)
	b.wait(find)
	b.do(fmt.Sprintf(`{
		const e = %s;
		e.focus();
		e.value = %q;
		for (const name of ["input", "change"]) e.dispatchEvent(new Event(name, {bubbles: true}));
	}`, find, text))
}

// goTo opens a view and waits until it is there.
func (b *window) goTo(hash string) {
	b.t.Helper()
	b.do(fmt.Sprintf(`{
		document.querySelector(".view")?.remove();
		if (location.hash === %q) dispatchEvent(new HashChangeEvent("hashchange"));
		else location.hash = %q;
	}`, hash, hash))
	b.wait(`document.querySelector(".view[data-ready]")`)
}

func (b *window) signIn(token string) {
	b.t.Helper()
	b.fill("Token", token)
	b.press("Sign in")
	b.wait(`document.querySelector(".view[data-ready]")`)
}

func (b *window) shot(name string) {
	b.t.Helper()
	b.wait(`!document.getAnimations().some(a => a.playState === "running" && !a.effect.target?.matches("tr") &&
		a.effect.getTiming().iterations !== Infinity)`)
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(name, png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// keys presses keys, as a person does.
func (b *window) keys(names ...string) {
	b.t.Helper()
	codes := map[string]string{"ArrowDown": kb.ArrowDown, "ArrowUp": kb.ArrowUp, "Enter": kb.Enter, "Escape": kb.Escape}
	for _, name := range names {
		b.run(chromedp.KeyEvent(cmp.Or(codes[name], name)))
	}
}

// context is what the window shares with no other.
func (b *window) context() cdp.BrowserContextID { return chromedp.FromContext(b.ctx).BrowserContextID }
