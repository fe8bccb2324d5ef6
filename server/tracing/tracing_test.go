package tracing

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestOnlyIfAsked(t *testing.T) {
	for _, name := range []string{"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		t.Setenv(name, "")
	}
	for _, c := range []struct {
		set  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, false},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, false},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}, true},
	} {
		t.Run("", func(t *testing.T) {
			for name, value := range c.set {
				t.Setenv(name, value)
			}
			tracer, err := New(t.Context(), "1")
			if err != nil || (tracer != nil) != c.want {
				t.Fatalf("%v: %v, %v", c.set, tracer, err)
			}
			if err := tracer.Stop(t.Context()); err != nil { // there is nothing to be sent
				t.Error(err)
			}
		})
	}
	served := false
	var none *Tracer
	none.Wrap("/", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true })).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if !served {
		t.Error("without a tracer nothing is served")
	}
}

// A span is named by the route, and belongs to the trace that the client names.
func TestSpans(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tracer, err := of(t.Context(), trace.WithSyncer(spans), "1")
	if err != nil {
		t.Fatal(err)
	}
	serve := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }
	h := tracer.Wrap("/v1/logs/{log}", http.HandlerFunc(serve))
	r := httptest.NewRequest("GET", "/v1/logs/secret?token=secret", nil)
	r.Header.Set("traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	h.ServeHTTP(httptest.NewRecorder(), r)
	got := spans.GetSpans()
	if len(got) != 1 || got[0].Name != "GET /v1/logs/{log}" ||
		got[0].SpanContext.TraceID().String() != "0123456789abcdef0123456789abcdef" {
		t.Fatalf("%+v", got)
	}
	for _, a := range got[0].Attributes {
		if a.Key == "url.query" {
			t.Errorf("a span has the query, which may have a token: %v", a)
		}
	}
	if err := tracer.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}
