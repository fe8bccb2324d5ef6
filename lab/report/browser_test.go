package report_test

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
	if shots != "" {
		w.Shot(filepath.Join(shots, "opened.png"))
	}
	w.Do(unfold)
	grounds := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		w.Look(scheme, 1400, 900)
		grounds[eval(w, `getComputedStyle(document.body).backgroundColor`)] = true
		if scheme == "dark" && shots == "" {
			continue // it is as wide as in light
		}
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
	}
	if len(grounds) != 2 {
		t.Errorf("light and dark have the grounds %v", grounds)
	}
}

// unfold opens all chapters.
const unfold = `document.querySelectorAll(".chapter > details").forEach(d => d.open = true)`

// TestFolded: a page that is opened is a few screens: what is known, and the titles of the rest. Links open a chapter
// and lead to what they name.
func TestFolded(t *testing.T) {
	w := show(t, report.Options{Mixed: true}, read(t, files()...)...)
	height := `document.documentElement.scrollHeight / innerHeight`
	for _, width := range []int64{380, 800, 1400} {
		w.Look("light", width, 900)
		limit := 4.0
		if width < 800 {
			limit = 8 // one column of answers
		}
		if screens := browsertest.Eval[float64](w, height); screens > limit {
			t.Errorf("%.1f screens at %d", screens, width)
		}
	}
	if text := eval(w, `document.querySelector("main").innerText.slice(0, 400)`); !strings.Contains(text, "In short") {
		t.Errorf("it begins with %q", text)
	}
	// Each link in turn, from a folded page.
	wrong := eval(w, `(async () => {
		const wrong = [], links = [...document.querySelectorAll('.answers a, .notice a')];
		if (links.length < 5) wrong.push("only " + links.length + " links");
		for (const link of links) {
			document.querySelectorAll("details").forEach(d => d.open = false);
			link.closest("details")?.toggleAttribute("open", true);
			location.hash = "";
			location.hash = link.hash;
			await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
			const target = document.querySelector(link.hash);
			if (!target?.closest(".chapter > details").open || target.getBoundingClientRect().height == 0)
				wrong.push(link.textContent + " leads to what is folded: " + link.hash);
		}
		return wrong.join("\n");
	})()`)
	if wrong != "" {
		t.Error(wrong)
	}
	w.Do(unfold)
	if screens := browsertest.Eval[float64](w, height); screens < 10 {
		t.Errorf("%.1f screens unfolded: nothing was folded", screens)
	}
}

// TestFewOperations: where rounds did a handful of operations, and have no percent in common but the slowest, the axis
// of percentiles begins there, and has no label over another.
func TestFewOperations(t *testing.T) {
	few := changed(t, "bench.json", func(text string) string {
		text = regexp.MustCompile(`"ops": \d+`).ReplaceAllString(text, `"ops": 10`)
		return strings.ReplaceAll(text, `"settle_seconds":`,
			`"latency_curve": [{"percent": 100, "us": 50}], "settle_seconds":`)
	})
	w := show(t, report.Options{}, read(t, few)...)
	w.Do(unfold)
	for what, expression := range map[string]string{"text over other text": overlaps, "not its marks": unmarked} {
		if wrong := eval(w, expression); wrong != "" {
			t.Errorf("%s:\n%s", what, wrong)
		}
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
