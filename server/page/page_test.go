package page_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/page"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// TestFiles gets the files as a browser does: with the headers that keep the page apart from everything else, and once
// only while they stay the same.
func TestFiles(t *testing.T) {
	mux := http.NewServeMux()
	for _, r := range page.Routes() {
		if r.Role != auth.None {
			t.Errorf("%s needs a token", r.Pattern)
		}
		mux.Handle(r.Method+" "+r.Pattern, r.Handler)
	}
	get := func(path string, header ...string) *recorded { return record(mux, path, header...) }
	for _, path := range []string{"/", "/page"} {
		if r := get(path); r.Code != http.StatusFound || r.Header().Get("Location") != "page/" {
			t.Errorf("%s: %d to %q", path, r.Code, r.Header().Get("Location"))
		}
	}
	if r := get("/page/none.js"); r.Code != http.StatusNotFound {
		t.Errorf("a file that is not there: %d", r.Code)
	}
	if r := get("/page/../page.go"); r.Code == http.StatusOK {
		t.Error("a file beside the assets is served")
	}
	for name, kind := range map[string]string{"": "text/html", "style.css": "text/css", "app.js": "text/javascript",
		"views/tasks.js": "text/javascript", "icon.svg": "image/svg+xml"} {
		r := get("/page/" + name)
		h := r.Header()
		if r.Code != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), kind) || r.Body.Len() == 0 {
			t.Errorf("%q: %d, %s", name, r.Code, h.Get("Content-Type"))
		}
		csp := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'",
			"require-trusted-types-for 'script'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%q: the policy has no %s: %s", name, want, csp)
			}
		}
		if strings.Contains(csp, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%q: headers: %v", name, h)
		}
		again := get("/page/"+name, "If-None-Match", h.Get("ETag"))
		if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
			t.Errorf("%q, asked for again: %d", name, again.Code)
		}
	}
}

// TestSource looks for what the page must not have: code in HTML, HTML made of text, and addresses elsewhere.
func TestSource(t *testing.T) {
	bad := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://`)
	err := filepath.WalkDir("assets", func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		for i, line := range strings.Split(string(text), "\n") {
			line = strings.ReplaceAll(line, "http://www.w3.org/2000/svg", "") // a name, which nobody asks for
			if found := bad.FindString(line); found != "" {
				t.Errorf("%s:%d has %s", name, i+1, found)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPage does in a browser what people do, on a server with data of every kind. One server and one window serve all
// steps in a row: what a step changes, those behind it see.
func TestPage(t *testing.T) {
	at := time.Now()
	s := serve(t)
	s.fill()
	b, whole := open(t, s), t
	t.Logf("start: %v", time.Since(at))
	step := func(name string, f func(t *testing.T)) {
		if !t.Run(name, func(t *testing.T) {
			b.T = t
			defer func() { b.T = whole; b.Clean(t) }()
			f(t)
		}) {
			t.FailNow() // those behind it need what it has done
		}
		t.Logf("%s: %v", name, time.Since(at))
		at = time.Now()
	}

	step("sign in", func(t *testing.T) {
		b.Run(chromedp.Navigate(s.http.URL + "/"))
		b.Wait(`location.pathname === "/page/" && document.querySelector("form.signin")`)
		b.Expect("401")
		b.Expect("400")
		b.fill("Token", auth.NewNamespaceSecret(message.Default))
		b.press("Sign in")
		b.text(".problem", "refuses this token")
		b.fill("Token", "nonsense €")
		b.press("Sign in")
		b.text(".problem", "no token")
		if stored := eval[int](b, `sessionStorage.length + localStorage.length`); stored != 0 {
			t.Error("a refused token is kept")
		}
		b.signIn(s.token)
		b.Wait(`location.hash === "#/overview"`)
	})

	step("overview", func(t *testing.T) {
		orders, err := s.data.Messages().Namespace(t.Context(), message.Default)
		s.must(err)
		b.text(".state", "Ready")
		b.text(".risk", "Nothing at Power or above would be lost")
		b.text("[data-tile=disk] .value", "MiB")
		before := eval[string](b, `document.querySelector("[data-tile=commits] .small").textContent`)
		_, err = orders.Write(t.Context(), "order-1", message.Message{Type: "Overview", Data: []byte(`{}`)})
		s.must(err)
		b.Wait(fmt.Sprintf(`document.querySelector("[data-tile=commits] .small").textContent !== %q`, before))
		b.Wait(`document.querySelectorAll("[data-tile=disk] .line[d*=L]").length === 1`)
	})

	step("no such view", func(t *testing.T) {
		b.goTo("#/nosuch")
		b.text("h1", "There is no such view")
		b.Do(`document.querySelector("main a").click()`)
		b.text(".state", "Ready")
	})

	step("streams and histograms", func(t *testing.T) {
		// Each byte comes by itself, so that lines, and characters, come in parts.
		got := eval[string](b, `import("/page/api.js").then(async ({events}) => {
			const text = ": kept alive\r\nid: 7\r\nevent: message\r\ndata: {\"a\":\r\ndata: \"ä€\"}\r\n\r\n" +
				"retry: 250\nevent: bye\ndata: {}\n\ndata:x\rid\r\rdata: never ended";
			const bytes = new TextEncoder().encode(text);
			let at = 0;
			const body = new ReadableStream({pull(c) { at < bytes.length ? c.enqueue(bytes.subarray(at, ++at)) : c.close(); }});
			const list = [];
			for await (const e of events(body)) list.push([e.event, e.id, e.data, e.retry ?? 0]);
			return JSON.stringify(list);
		})`)
		if want := `[["message","7","{\"a\":\n\"ä€\"}",0],["bye","7","{}",250],["message","","x",0]]`; got != want {
			t.Errorf("events: %s, not %s", got, want)
		}
		got = eval[string](b, `import("/page/api.js").then(async ({everyNamespace}) => {
			const real = window.fetch; // a server with 2,300 of them, which tells 1,000 at a time
			window.fetch = async url => {
				const query = new URL(url).searchParams, page = [];
				for (let i = 0; i < 2300; i++) {
					const id = "n" + String(i).padStart(4, "0");
					if (id > (query.get("after") ?? "") && page.length < Math.min(query.get("limit") ?? 1000, 1000)) page.push({id});
				}
				return new Response(JSON.stringify(page));
			};
			try {
				const all = await everyNamespace();
				return all.length + " " + all.at(-1).id;
			} finally {
				window.fetch = real;
			}
		})`)
		if got != "2300 n2299" {
			t.Errorf("namespaces: %s", got)
		}
		got = eval[string](b, `import("/page/views/overview.js").then(({histogram, quantiles}) => {
			const metrics = (...n) => '# TYPE request_seconds histogram\n' + ["0.001", "0.01", "+Inf"].map((le, i) =>
				'request_seconds_bucket{route="/v1/x",le="' + le + '"} ' + n[i] + '\n').join("") + "request_seconds_sum 1\n";
			const {p50, p99} = quantiles(histogram(metrics(10, 10, 10)).buckets, histogram(metrics(100, 110, 110)).buckets);
			return p50.toFixed(3) + " " + p99.toFixed(3);
		})`)
		if got != "0.556 9.100" {
			t.Errorf("median and 99th percentile, in milliseconds: %s", got)
		}
	})

	step("logs", func(t *testing.T) {
		b.goTo("#/logs")
		b.text("tr", "orders")
		b.text("tr", "154 behind")
		b.fill("Find", "aud")
		b.Wait(`document.querySelectorAll("tbody tr").length === 1`)
		b.goTo("#/logs/orders")
		b.text("tr", "search-index")
		b.Wait(`document.querySelector("table[aria-label='Events of orders'] tbody tr").data.position === 230`)
		b.press("Older")
		b.Wait(`document.querySelectorAll("table[aria-label='Events of orders'] tbody tr").length === 100`)
		b.fill("Type contains", "moved")
		b.Wait(`[...document.querySelectorAll("table[aria-label='Events of orders'] tbody tr")].every(r =>
			r.innerText.includes("CustomerMoved"))`)
		b.fill("Type contains", "")
		b.fill("From position", "17")
		b.press("Show")
		b.Wait(`document.querySelector("table[aria-label='Events of orders'] tbody tr:last-child")?.data.position === 17`)
		b.Do(`document.querySelector("table[aria-label='Events of orders'] tbody tr:last-child").click()`)
		b.text(".detail", `"customer": "c-7"`)

		log, err := s.data.Log(t.Context(), message.Default, "orders")
		s.must(err)
		b.press("Live")
		b.Wait(`document.querySelector(".live").dataset.state === "live"`)
		_, err = log.Append(t.Context(), event.Event{Type: "SeenLive", Data: []byte("\x00\xff")})
		s.must(err)
		b.text("table[aria-label='Events of orders'] tr", "SeenLive")
		s.http.CloseClientConnections() // as when a network breaks: it connects again where it was
		_, err = log.Append(t.Context(), event.Event{Type: "SeenAgain"})
		s.must(err)
		b.text("table[aria-label='Events of orders'] tr", "SeenAgain")
		b.Expect("ERR_")
		b.mu.Lock()
		if !slices.Contains(b.resumed, "232") {
			t.Errorf("it went on from %q", b.resumed)
		}
		b.mu.Unlock()
		b.press("Live")
		b.Wait(`document.querySelector(".live").dataset.state === "off"`)
	})

	step("messages", func(t *testing.T) {
		b.goTo("#/messages")
		b.text("tr", "payment")
		b.fill("Name begins with", "order-1")
		b.Wait(`document.querySelectorAll("table[aria-label=Streams] tbody tr").length === 8`)
		b.goTo("#/messages/search?category=order&type=OrderPaid")
		b.Wait(`document.querySelectorAll("table[aria-label=Messages] tbody tr").length === 40`)
		b.goTo("#/messages/search?category=order")
		b.Wait(`(() => { // until there are no older ones
			const older = [...document.querySelectorAll("button")].find(e => e.innerText === "Older");
			if (!older.disabled) older.click();
			return older.disabled && !older.hasAttribute("aria-busy") &&
				document.querySelectorAll("table[aria-label=Messages] tbody tr").length === 121;
		})()`)
		b.goTo("#/messages/search?stream=order-3")
		b.press("Live")
		b.Wait(`document.querySelector(".live").dataset.state === "live"`)
		orders, err := s.data.Messages().Namespace(t.Context(), message.Default)
		s.must(err)
		_, err = orders.Write(t.Context(), "order-3", message.Message{Type: "SeenLive", Data: []byte(`{}`)})
		s.must(err)
		b.text("table[aria-label=Messages] tr", "SeenLive")

		b.goTo("#/messages/message/122")
		b.text("pre", "12345678901234567890") // a number that JavaScript's cannot hold
		b.Wait(`[...document.querySelectorAll(".chain li")].map(e => e.className).join() === "cause,this,same"`)
		b.text(".chain li.cause", "CheckoutStarted")
		b.text(".chain li.same", "MailSent")
		b.goTo("#/messages/message/124")
		b.text("h1", hostile)
		b.goTo("#/messages/message/125")
		b.Wait(`document.querySelector("pre").textContent.length < 10000`)
		b.Do(`[...document.querySelectorAll("button")].find(b => b.innerText.startsWith("Show all")).click()`)
		b.Wait(`document.querySelector("pre").textContent.length > 1000000`)
		b.goTo("#/messages/message/999999")
		b.text(".empty", "no message at this position")
		b.goTo("#/messages?ns=warehouse")
		b.text(".empty", "no messages in this namespace yet")
	})

	step("consumer groups", func(t *testing.T) {
		b.goTo("#/groups")
		b.text("tr", "123 behind")
		b.text("tr", "search-index")
		b.goTo("#/groups/order-mails")
		b.Wait(`document.querySelectorAll("table[aria-label='Parked messages'] tbody tr").length === 3`)
		b.text("tr", "550 no such mailbox")
		b.Do(`document.querySelector("table[aria-label='Parked messages'] tbody tr").click()`)
		b.text(".detail .payload", `"sku": "A-3"`)
		b.text(".detail", hostile)
		b.Do(`document.querySelector("input[aria-label='Choose message 4']").click()`)
		b.press("Replay")
		b.text(".toast", "1 will be delivered again")
		b.Wait(`document.querySelectorAll("table[aria-label='Parked messages'] tbody tr").length === 2`)
		b.Do(`document.querySelector(".check input").click()`)
		b.press("Discard …")
		b.press("Discard 2")
		b.text(".empty", "Nothing is parked")
		mails, err := s.data.Subscription(t.Context(), message.Default, "order-mails")
		s.must(err)
		list, err := mails.Parked(t.Context(), 0, 0)
		if err != nil || len(list) != 0 {
			t.Errorf("parked: %v, %v", list, err)
		}
	})

	step("tasks", func(t *testing.T) {
		tasks, err := s.data.Tasks(t.Context(), message.Default)
		s.must(err)
		b.goTo("#/tasks")
		b.text("tr", "mail")
		b.press("Pause mail")
		b.press("Resume mail")
		b.Wait(`document.querySelector("[aria-label='Pause mail']")`)
		b.press("Retry all dead tasks of mail")
		b.text(".toast", "3 dead tasks are tried again")
		counts, err := tasks.Count(t.Context(), "mail")
		if err != nil || counts[task.Dead] != 0 {
			t.Errorf("counts: %v, %v", counts, err)
		}
		b.goTo("#/tasks/list?queue=mail&state=completed")
		b.Wait(`document.querySelectorAll("table[aria-label=Tasks] tbody tr").length === 11`)
		b.goTo("#/tasks/list")
		b.Wait(`document.querySelectorAll("table[aria-label=Tasks] tbody tr").length === 50`)
		b.press("Next page")
		b.Wait(`document.querySelectorAll("table[aria-label=Tasks] tbody tr").length === 10`)

		leases, err := tasks.Claim(t.Context(), task.ClaimOptions{Queues: []string{"mail"}, N: 2, Worker: "worker-2"})
		s.must(err)
		s.must(tasks.SetOutput(t.Context(), leases[0], []byte(`{"half": "done"}`)))
		s.must(tasks.Fail(t.Context(), leases[0], task.Failure{Message: "it broke " + hostile, Stack: "main.go:7"},
			task.FailOptions{Dead: true}))
		b.goTo("#/tasks/task/" + leases[0].Task.ID)
		b.text(".failures", "it broke "+hostile)
		b.text(".payload", `"template": "welcome"`)
		b.text(".payload", `"half": "done"`)
		b.press("Retry")
		b.text(".chip", "waiting")
		b.press("Cancel")
		b.text(".chip", "cancelled")
		b.Expect("404")
		b.press("Delete …")
		b.press("Delete")
		b.Wait(`location.hash.startsWith("#/tasks/list")`)
		if _, err := tasks.Get(t.Context(), leases[0].Task.ID); err == nil {
			t.Error("the task is still there")
		}
		b.goTo("#/tasks/task/none")
		b.text(".problem", "Not found")
	})

	step("namespaces and tokens", func(t *testing.T) {
		b.goTo("#/access")
		b.text("tr", "warehouse")
		b.press("New namespace")
		b.fill("Name", "tenant-1")
		b.fill("Description", "A test "+hostile)
		b.press("Make it")
		b.Wait(`document.querySelector("dialog [data-secret]")`)
		secret := eval[string](b, `document.querySelector("[data-secret]").value`)
		if p, err := s.tokens.Check(t.Context(), secret); err != nil || p.Namespace != "tenant-1" {
			t.Errorf("the token that was shown: %v, %v", p, err)
		}
		b.press("I have kept it")
		b.text("tr", "tenant-1")
		if eval[bool](b, fmt.Sprintf(`document.documentElement.outerHTML.includes(%q)`, secret)) {
			t.Error("the token is still there")
		}
		b.Expect("409")
		b.press("New namespace")
		b.fill("Name", "tenant-1")
		b.press("Make it")
		b.text("dialog .problem", "conflicts")
		b.press("Cancel")
		b.press("New token")
		b.fill("Description", "a reader")
		b.fill("Namespace", "tenant-1")
		b.press("Make it")
		b.Wait(`document.querySelector("dialog [data-secret]")`)
		reader := eval[string](b, `document.querySelector("[data-secret]").value`)
		p, err := s.tokens.Check(t.Context(), reader)
		if err != nil || p.Role != auth.Read {
			t.Errorf("the token that was made: %v, %v", p, err)
		}
		b.press("I have kept it")
		b.press("Revoke token " + p.TokenID)
		b.press("Revoke")
		b.text(".toast", "revoked")
		if _, err := s.tokens.Check(t.Context(), reader); err == nil {
			t.Error("the token still works")
		}
		b.press("Delete namespace tenant-1")
		b.Wait(`document.querySelector("dialog .danger").disabled`)
		b.fill("Type tenant-1 to confirm", "tenant")
		b.Wait(`document.querySelector("dialog .danger").disabled`)
		b.fill("Type tenant-1 to confirm", "tenant-1")
		b.press("Delete for ever")
		b.text(".toast", "Namespace tenant-1 deleted")
		if _, err := s.data.Messages().Info(t.Context(), "tenant-1"); err == nil {
			t.Error("the namespace is still there")
		}
	})

	step("engine", func(t *testing.T) {
		dir := t.TempDir()
		s.must(called(chromedp.CallBrowser(b.Ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
			Behavior: browser.SetDownloadBehaviorBehaviorAllow, BrowserContextID: b.context(), DownloadPath: dir})))
		b.goTo("#/engine")
		b.text("tr", "segment")
		b.text(".caveats", "crash")
		b.press("Verify now")
		b.text(".verdict", "All is intact")
		b.press("Compact")
		b.text(".toast", "before,")
		b.press("Download a backup")
		b.text("p", "MiB in holdfast-")
		if !testkit.Holds(func() bool {
			files, err := filepath.Glob(dir + "/*.tar")
			s.must(err)
			if len(files) != 1 {
				return false
			}
			info, err := os.Stat(files[0])
			return err == nil && info.Size() > 0
		}) {
			t.Fatal("no backup came")
		}
	})

	step("query", func(t *testing.T) {
		b.goTo("#/query")
		b.text("details", "messages")
		b.fill("Statement", "select count(*) as n, 12345678901234567 as big, 1.0 as f, null as no, x'00ff' as b, "+
			"min(data) as data from messages where type = 'OrderPaid';")
		b.press("Run")
		b.Wait(
			`[...document.querySelectorAll("table[aria-label=Result] tbody td")].slice(0, 5).map(e => e.innerText).join() ===
			"40,12345678901234567,1.0,null,2 B of bytes"`,
		)
		b.text("[role=status]", "1 row, ")
		b.Do(`document.querySelector("table[aria-label=Result] tbody tr").click()`)
		b.text(".detail", `"sku":`)
		b.text(".detail", "00 ff")
		b.press("Close")
		b.fill("Statement", "select global, stream, position, type, time, data, null as nobody, x'00ff' as bytes\n"+
			"from messages\nwhere category = 'order'\norder by global desc\nlimit 12")
		b.press("Run")
		b.text("[role=status]", "12 rows, ")
		if dir := os.Getenv("HOLDFAST_PAGE_SHOTS"); dir != "" {
			b.Look("light", 1280, 900)
			b.Shot(filepath.Join(dir, "query-result.png"))
		}

		b.fill("Statement", "select type from messages where stream = 'hostile-1'")
		b.press("Run")
		b.text("table[aria-label=Result] td", hostile)
		b.Expect("400")
		b.fill("Statement", "select nowhere from messages")
		b.press("Run")
		b.text(".answer .problem", "no such column: nowhere")
		b.fill("Statement", "with recursive c(x) as (select 1 union all select x + 1 from c limit 1500) select x from c")
		b.press("Run")
		b.text("[role=status]", "The first 1,000 rows")
		b.Wait(`document.querySelectorAll("table[aria-label=Result] tbody tr").length === 1000`)
		b.press("Explain")
		b.text("table[aria-label=Result] td", "RECURSIVE STEP")

		// One that never ends is cancelled, on the server too: there is room for 2 at once, and the third runs.
		for range 3 {
			b.fill("Statement", "with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c")
			b.press("Run")
			b.text("[role=status]", "Running")
			b.press("Cancel")
			b.text("[role=status]", "Cancelled")
		}

		b.fill("Statement", "select id, state from tasks limit 3")
		b.press("Save …")
		b.fill("Name", "some tasks")
		b.press("Save")
		b.text(".toast", "Saved as some tasks")
		b.goTo("#/query")
		b.press("some tasks")
		b.Wait(`document.querySelector("textarea").value === "select id, state from tasks limit 3"`)
		b.press("Run")
		b.text("[role=status]", "3 rows, ")
		b.press("Delete some tasks")
		b.press("Delete it")
		b.Wait(`![...document.querySelectorAll(".queries button")].some(e => e.innerText === "some tasks")`)
		for _, name := range eval[[]string](b, `[...document.querySelectorAll(".queries")][0].innerText.split("\n")`) {
			b.press(name) // the examples
			b.press("Run")
			b.text("[role=status]", "row")
		}

		dir := t.TempDir()
		s.must(called(chromedp.CallBrowser(b.Ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
			Behavior: browser.SetDownloadBehaviorBehaviorAllow, BrowserContextID: b.context(), DownloadPath: dir})))
		b.fill("Statement", "select 'a,b' as x, count(*) as n from messages where type = 'OrderPaid'")
		b.press("Download CSV")
		if !testkit.Holds(func() bool {
			text, err := os.ReadFile(filepath.Join(dir, "query.csv"))
			return err == nil && string(text) == "x,n\n\"a,b\",40\n"
		}) {
			t.Fatal("no CSV came")
		}
	})

	step("API", func(t *testing.T) {
		b.goTo("#/operations")
		b.fill("Find", "get messages/last")
		b.Wait(`document.querySelectorAll(".operation").length === 1`)
		b.Do(`document.querySelector(".operation summary").click()`)
		b.fill("stream", "payment-7")
		b.press("Send")
		b.text(".answer .chip", "200")
		b.text(".answer pre", "PaymentTaken")
		b.fill("Find", "enqueue tasks, all")
		b.Do(`document.querySelector(".operation summary").click()`)
		b.fill("Body", `{"tasks": [{"kind": "tried", "queue": "trial"}]}`)
		b.press("Send")
		b.text(".answer .chip", "200")
		tasks, err := s.data.Tasks(t.Context(), message.Default)
		s.must(err)
		if counts, err := tasks.Count(t.Context(), "trial"); err != nil || counts[task.Waiting] != 1 {
			t.Errorf("the task that was tried: %v, %v", counts, err)
		}
	})

	step("keys", func(t *testing.T) {
		b.goTo("#/tasks")
		b.keys("g", "m")
		b.Wait(`location.hash === "#/messages" && document.querySelector(".view[data-ready]")`)
		b.Wait(`document.querySelector("table[aria-label=Categories] tbody tr")`)
		b.keys("j", "ArrowDown")
		b.Wait(`document.activeElement.matches("tbody tr:nth-child(2)")`)
		b.keys("ArrowUp", "Enter")
		b.Wait(`location.hash.startsWith("#/messages/search?category=")`)
		// The view before has no such form: it is ready until the page has heard of the new address.
		b.Wait(`document.querySelector(".view[data-ready] form[role=search]")`)
		b.keys("/")
		b.Wait(`document.activeElement.matches("[data-search]")`)
		b.keys("Escape", "?")
		b.Wait(`document.querySelector("dialog[open] .keys")`)
		b.keys("Escape")
		b.Wait(`!document.querySelector("dialog")`)
	})

	step("looks", func(t *testing.T) {
		ground := func() string { return eval[string](b, `getComputedStyle(document.body).backgroundColor`) }
		views := []string{"#/overview", "#/logs", "#/logs/orders?at=5", "#/messages", "#/messages/search?category=order",
			"#/messages/message/122", "#/messages/message/124", "#/groups", "#/groups/order-mails", "#/tasks",
			"#/tasks/list?queue=mail", "#/access", "#/engine", "#/operations", "#/messages?ns=warehouse", "#/query"}
		dir := os.Getenv("HOLDFAST_PAGE_SHOTS") // pictures of all views are put there
		b.Look("light", 360, 740)
		light := ground()
		for i, view := range views {
			b.goTo(view)
			m, err := chromedp.Call(b.Ctx, cdppage.GetLayoutMetrics, cdp.Empty{})
			if err != nil || m.CSSContentSize.Width > 360 {
				t.Errorf("%s is %v wide on a phone: %v", view, m.CSSContentSize, err)
			}
			if wide := eval[string](b, tooWide); wide != "" {
				t.Errorf("%s is wider than a phone: %s", view, wide)
			}
			if dir != "" {
				b.Shot(filepath.Join(dir, fmt.Sprintf("%02d-phone.png", i)))
			}
			if names := eval[string](b, nameless); names != "" {
				t.Errorf("%s has controls without a name: %s", view, names)
			}
		}
		b.press("Menu")
		b.Wait(`document.querySelector("nav#nav").checkVisibility()`)
		b.Look("dark", 1280, 900)
		if dark := ground(); dark == light {
			t.Errorf("dark is light: %s", dark)
		}
		b.Do(`document.querySelector(".theme").click()`)
		if got := ground(); got != light {
			t.Errorf("the choice of light gives %s, not %s", got, light)
		}
		b.Do(`document.querySelector(".theme").click(); document.querySelector(".theme").click()`)
		for _, scheme := range []string{"light", "dark"} {
			b.Look(scheme, 1280, 900)
			for i := 0; dir != "" && i < len(views); i++ {
				b.goTo(views[i])
				b.Shot(filepath.Join(dir, fmt.Sprintf("%02d-%s.png", i, scheme)))
			}
		}
	})

	step("tokens that may less", func(t *testing.T) {
		b.press("Sign out")
		b.Wait(`document.querySelector("form.signin") && !sessionStorage.length`)
		read, secret, err := s.tokens.Create(t.Context(), auth.Token{Namespace: "warehouse", Role: auth.Read})
		s.must(err)
		b.signIn(secret)
		b.Wait(`location.hash.startsWith("#/messages")`)
		if links := eval[int](b, `document.querySelectorAll("nav#nav a").length`); links != 6 {
			t.Errorf("a token for one namespace has %d views", links)
		}
		b.goTo("#/access")
		b.text(".empty", "shown to administrators")
		b.goTo("#/tasks")
		b.text(".empty", "no queues")
		b.Expect("403")
		b.goTo("#/overview")
		b.text(".state", "may not")
		b.goTo("#/logs")
		s.must(s.tokens.Revoke(t.Context(), read.ID))
		b.Do(`location.hash = "#/messages"`)
		b.text(".problem", "refuses this token")
		b.Wait(`!sessionStorage.length`)

		_, secret, err = s.tokens.Create(t.Context(), auth.Token{Namespace: auth.Everywhere, Role: auth.Read})
		s.must(err)
		b.signIn(secret)
		b.Wait(`document.querySelector("#namespace option[value='']")`)
		b.Do(`{const e = document.querySelector("#namespace"); e.value = ""; e.dispatchEvent(new Event("change"))}`)
		b.fill("Namespace", "warehouse")
		b.press("Open")
		b.Wait(`location.hash === "#/messages?ns=warehouse"`)
		b.goTo("#/tasks/list?queue=mail")
		b.Wait(`document.querySelector("tbody tr")`)
		if n := eval[int](b, `document.querySelectorAll("main .actions button").length`); n != 0 {
			t.Errorf("a reader is offered %d buttons that write", n)
		}
		b.Expect("403")
		b.goTo("#/query")
		b.text(".problem", "role query")

		b.press("Sign out")
		_, secret, err = s.tokens.Create(t.Context(), auth.Token{Namespace: "warehouse", Role: auth.Query})
		s.must(err)
		b.signIn(secret)
		b.goTo("#/query")
		b.fill("Statement", "select count(*) from messages")
		b.press("Run")
		b.Wait(`document.querySelector("table[aria-label=Result] td")?.innerText === "0"`) // those of its namespace
		b.press("Sign out")
		b.signIn(s.token)
	})

	step("no server", func(t *testing.T) {
		b.goTo("#/overview")
		b.text(".state", "Ready")
		b.Wait(`document.querySelector(".lost").hidden`)
		at := s.http.Listener.Addr().String()
		s.must(s.http.Listener.Close())
		s.http.CloseClientConnections()
		b.Wait(`!document.querySelector(".lost").hidden`)
		b.text(".lost", "cannot be reached")

		// Nothing that was true before is said to be so now.
		b.text(".state", "not known")
		b.Wait(`!document.querySelector("main .state .good, main .risk.good")`)

		// A view that is opened now comes by itself once the server is back.
		b.goTo("#/logs")
		b.text(".problem", "cannot be reached")
		l, err := net.Listen("tcp", at)
		s.must(err)
		again := &http.Server{Handler: s.http.Config.Handler}
		defer again.Close()
		go again.Serve(l)
		b.Wait(`document.querySelector(".lost").hidden && !document.querySelector(".problem")`)
		b.Wait(`document.querySelector("main table")`)
		b.goTo("#/overview")
		b.text(".state", "Ready")
	})
}

// nameless lists the controls that a screen reader could not name.
const nameless = `[...document.querySelectorAll("button, a, input, select, textarea")].filter(e =>
	e.checkVisibility() && !(e.getAttribute("aria-label") || e.labels?.length ||
	e.matches("button, a") && e.innerText.trim()))
	.map(e => e.outerHTML.slice(0, 200)).join("\n")`

// tooWide lists what a phone does not show, and cannot scroll to.
const tooWide = `[...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > 361 &&
	!e.closest(".scroll, pre, .tabs, .unseen")).map(e => e.outerHTML.slice(0, 200)).join("\n")`
