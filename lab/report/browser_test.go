package report_test

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/holdfastdb/holdfast/internal/browsertest"
	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/report"
)

func TestMain(m *testing.M) { browsertest.Main(m) }

// show opens the page of the sources in a window that may request nothing else.
func show(t *testing.T, o report.Options, sources ...report.Source) *browsertest.Window {
	t.Helper()
	var html bytes.Buffer
	if err := report.Write(&html, bench.Standard(), sources, o); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(name, html.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	w := browsertest.Open(t, func(url string) bool { return url == "file://"+name }, nil)
	w.Run(chromedp.Navigate("file://" + name))
	w.Wait(`document.readyState === "complete" && document.querySelector("#sources")`)
	return w
}

func eval(w *browsertest.Window, expression string) string {
	return browsertest.Eval[string](w, expression)
}

func read(t *testing.T, names ...string) (list []report.Source) {
	t.Helper()
	for _, name := range names {
		s, err := report.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

// shots is where pictures are put, for people to look at: of the reports that HOLDFAST_REPORTS names, separated by
// commas, or of those of the tests.
var shots = os.Getenv("HOLDFAST_REPORT_SHOTS")

func files() []string {
	return strings.Split(cmp.Or(os.Getenv("HOLDFAST_REPORTS"),
		"testdata/bench.json,testdata/bench.json,testdata/long.json,testdata/crash.json"), ",")
}

// TestLooks: a report fits a phone, a tablet and a screen, in both themes, and each plot draws all its numbers.
func TestLooks(t *testing.T) {
	w := show(t, report.Options{Mixed: true}, read(t, files()...)...)
	grounds := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{380, 800, 1400} {
			w.Look(scheme, width, 900)
			m, err := chromedp.Call(w.Ctx, page.GetLayoutMetrics, cdp.Empty{})
			if err != nil || m.CSSContentSize.Width > float64(width) {
				t.Errorf("%v wide at %d: %v", m.CSSContentSize, width, err)
			}
			for what, expression := range map[string]string{
				"is wider than the page":           wider,
				"has text over other text":         overlaps,
				"has not the marks that it counts": unmarked,
			} {
				if wrong := eval(w, expression); wrong != "" {
					t.Errorf("at %d, %s: this %s:\n%s", width, scheme, what, wrong)
				}
			}
			if shots != "" {
				w.Shot(filepath.Join(shots, fmt.Sprintf("%s-%d.png", scheme, width)))
			}
		}
		grounds[eval(w, `getComputedStyle(document.body).backgroundColor`)] = true
	}
	if len(grounds) != 2 {
		t.Errorf("light and dark have the grounds %v", grounds)
	}
}

// wider lists what is outside of the window.
const wider = `[...document.querySelectorAll("main *, header *")].filter(e => e.checkVisibility() &&
	(e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1) &&
	!e.closest(".scroll, pre, .unseen")).map(e => e.outerHTML.slice(0, 200)).join("\n")`

// overlaps lists texts of plots that lie over each other.
const overlaps = `[...document.querySelectorAll(".canvas > svg")].flatMap(svg => {
	const texts = [...svg.querySelectorAll("text")].map(e => [e, e.getBoundingClientRect()]);
	return texts.flatMap(([e, a], i) => texts.slice(i + 1).filter(([f, b]) =>
		a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3).map(([f]) =>
		svg.closest("figure").id + ": " + e.textContent + " | " + f.textContent));
}).join("\n")`

// unmarked lists plots whose marks are not as many as their data, or that lack a title, a description or a table.
const unmarked = `[...document.querySelectorAll("figure.plot")].filter(f => {
	const svg = f.querySelector(".canvas > svg");
	return f.querySelectorAll(".mark").length != f.dataset.marks || f.dataset.marks == 0 ||
		!svg.querySelector("title").textContent ||
		!svg.querySelector("desc").textContent || !f.querySelector("details tbody tr");
}).map(f => f.id + " " + f.dataset.marks).join("\n")`
