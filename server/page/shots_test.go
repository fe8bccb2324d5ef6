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
		"access": "#/access", "engine": "#/engine", "operations": "#/operations", "empty": "#/messages?ns=warehouse", "missing": "#/tasks/task/none",
	}
	for _, look := range []struct {
		name          string
		scheme        string
		width, height int64
	}{{"light", "light", 1280, 900}, {"dark", "dark", 1280, 900}, {"phone", "light", 360, 780}} {
		b := open(t, s)
		b.look(look.scheme, look.width, look.height)
		b.run(chromedp.Navigate(s.http.URL + "/page/"))
		b.wait(`document.querySelector("form.signin")`)
		b.shot(filepath.Join(dir, "signin-"+look.name+".png"))
		b.signIn(s.token)
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
