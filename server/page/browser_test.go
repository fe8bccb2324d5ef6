package page_test

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfastdb/holdfast/internal/browsertest"
)

const patience = browsertest.Patience

func TestMain(m *testing.M) { browsertest.Main(m) }

// window shows the page of a server.
type window struct {
	*browsertest.Window
	s *server

	mu      sync.Mutex
	resumed []string // Last-Event-IDs that it has sent
}

func open(t *testing.T, s *server) *window {
	t.Helper()
	b := &window{s: s}
	b.Window = browsertest.Open(t, func(url string) bool { return strings.HasPrefix(url, s.http.URL+"/") }, b.requested)
	return b
}

// requested notes what requests resume, and complains if one shows the token.
func (b *window) requested(event any) string {
	e, ok := event.(*network.EventRequestWillBeSent)
	if !ok {
		return ""
	}
	for name, value := range e.Request.Headers {
		if strings.EqualFold(name, "Last-Event-ID") {
			b.mu.Lock()
			b.resumed = append(b.resumed, fmt.Sprint(value))
			b.mu.Unlock()
		}
	}
	if strings.Contains(e.Request.URL, b.s.token) {
		return "the token is in an address: " + e.Request.URL
	}
	return ""
}

func called[R any](_ R, err error) error { return err }

func eval[V any](b *window, expression string) V {
	b.T.Helper()
	return browsertest.Eval[V](b.Window, expression)
}

// text waits until a text is in what an element shows.
func (b *window) text(selector, text string) {
	b.T.Helper()
	b.Wait(fmt.Sprintf("[...document.querySelectorAll(%q)].some(e => e.innerText.includes(%q))", selector, text))
}

// press clicks the button, or the link, of that name, or label.
func (b *window) press(name string) {
	b.T.Helper()
	find := fmt.Sprintf(`[...(document.querySelector("dialog[open]") ?? document).querySelectorAll("button, a")].find(e =>
		!e.disabled && !e.hasAttribute("aria-busy") && e.checkVisibility() &&
		(e.getAttribute("aria-label") ?? e.innerText.trim()) === %q)`, name)
	b.Wait(find)
	b.Do(find + ".click()")
}

// fill writes into the field of that label.
func (b *window) fill(label, text string) {
	b.T.Helper()
	find := fmt.Sprintf(`[...(document.querySelector("dialog[open]") ?? document).querySelectorAll("label")].find(e =>
		e.innerText.trim().startsWith(%q))?.control`, label)
	b.Wait(find)
	b.Do(fmt.Sprintf(`{
		const e = %s;
		e.focus();
		e.value = %q;
		for (const name of ["input", "change"]) e.dispatchEvent(new Event(name, {bubbles: true}));
	}`, find, text))
}

// goTo opens a view and waits until it is there.
func (b *window) goTo(hash string) {
	b.T.Helper()
	b.Do(fmt.Sprintf(`{
		document.querySelector(".view")?.remove();
		if (location.hash === %q) dispatchEvent(new HashChangeEvent("hashchange"));
		else location.hash = %q;
	}`, hash, hash))
	b.Wait(`document.querySelector(".view[data-ready]")`)
}

func (b *window) signIn(token string) {
	b.T.Helper()
	b.fill("Token", token)
	b.press("Sign in")
	b.Wait(`document.querySelector(".view[data-ready]")`)
}

// keys presses keys, as a person does.
func (b *window) keys(names ...string) {
	b.T.Helper()
	codes := map[string]string{"ArrowDown": kb.ArrowDown, "ArrowUp": kb.ArrowUp, "Enter": kb.Enter, "Escape": kb.Escape}
	for _, name := range names {
		b.Run(chromedp.KeyEvent(cmp.Or(codes[name], name)))
	}
}

// context is what the window shares with no other.
func (b *window) context() cdp.BrowserContextID { return chromedp.FromContext(b.Ctx).BrowserContextID }
