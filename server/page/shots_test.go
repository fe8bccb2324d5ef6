package page_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestShots draws every view into the directory that PAGE_SHOTS names, for people to look at.
func TestShots(t *testing.T) {
	dir := os.Getenv("PAGE_SHOTS")
	if dir == "" {
		t.Skip("PAGE_SHOTS names no directory for pictures")
	}
	s := serve(t)
	s.fill()
	s.busyWriter(20 * time.Millisecond)
	views := map[string]string{
		"overview": "#/overview", "logs": "#/logs", "log": "#/logs/orders", "event": "#/logs/orders?at=17", "messages": "#/messages",
		"search": "#/messages/search?category=order", "stream": "#/messages/search?stream=hostile-1", "message": "#/messages/message/122", "large": "#/messages/message/125",
		"groups": "#/groups", "group": "#/groups/order-mails", "tasks": "#/tasks", "queue": "#/tasks/list?queue=mail", "dead": "#/tasks/list?queue=mail&state=dead",
		"access": "#/access", "engine": "#/engine", "operations": "#/operations", "empty": "#/messages?ns=warehouse", "missing": "#/tasks/task/none", "task": "#/tasks/task/" + s.dead,
	}
	for _, look := range []struct {
		name          string
		scheme        string
		width, height int64
	}{{"light", "light", 1280, 900}, {"dark", "dark", 1280, 900}, {"phone", "light", 360, 780}} {
		b := open(t, s)
		b.expect("404") // the one that is not there
		b.look(look.scheme, look.width, look.height)
		b.run(chromedp.Navigate(s.http.URL + "/page/"))
		b.wait(`document.querySelector("form.signin")`)
		b.shot(filepath.Join(dir, "signin-"+look.name+".png"))
		b.signIn(s.token)
		if name := os.Getenv("PAGE_SHOT"); name == "" || name == "states" {
			b.goTo("#/access")
			b.press("New token")
			b.fill("Description", "nightly reports")
			b.shot(filepath.Join(dir, "dialog-"+look.name+".png"))
			b.press("Make it")
			b.wait(`document.querySelector("[data-secret]")`)
			b.shot(filepath.Join(dir, "secret-"+look.name+".png"))
			b.press("I have kept it")
			b.press("Delete namespace warehouse")
			b.shot(filepath.Join(dir, "confirm-"+look.name+".png"))
			b.press("Keep it")
			b.goTo("#/engine")
			b.press("Verify now")
			b.text(".verdict", "intact")
			b.shot(filepath.Join(dir, "verified-"+look.name+".png"))
			b.goTo("#/messages/search?category=order")
			b.press("Live")
			b.wait(`document.querySelector(".live").dataset.state === "live"`)
			b.shot(filepath.Join(dir, "live-"+look.name+".png"))
			b.goTo("#/operations?find=messages/last")
			b.do(`document.querySelector(".operation summary").click()`)
			b.fill("stream", "payment-7")
			b.press("Send")
			b.text(".answer pre", "PaymentTaken")
			b.shot(filepath.Join(dir, "tried-"+look.name+".png"))
			b.goTo("#/operations?find=write messages")
			b.do(`document.querySelector(".operation summary").click()`)
			b.shot(filepath.Join(dir, "body-"+look.name+".png"))
			if look.width < 500 {
				b.press("Menu")
				b.shot(filepath.Join(dir, "menu-"+look.name+".png"))
			} else {
				b.goTo("#/tasks")
				b.press("Pause mail")
				b.keys("?")
				b.wait(`document.querySelector(".toast") && document.querySelector(".keys")`)
				b.shot(filepath.Join(dir, "keys-"+look.name+".png"))
				b.keys("Escape")
				b.press("Resume mail")
				b.keys("j")
				b.shot(filepath.Join(dir, "focus-"+look.name+".png"))
			}
		}
		for name, hash := range views {
			if only := os.Getenv("PAGE_SHOT"); only != "" && only != name {
				continue
			}
			b.goTo(hash)
			if name == "overview" {
				b.wait(`document.querySelectorAll(".spark .line[d]").length > 3 && document.querySelector(".spark .line").getAttribute("d").length > 60`)
			}
			b.shot(filepath.Join(dir, name+"-"+look.name+".png"))
		}
	}
}
