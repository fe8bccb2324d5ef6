// Package tracing sends traces of a server's requests to where the environment says, by OpenTelemetry's variables.
//
//	tracer, err := tracing.New(ctx, version) // none, if the environment names no collector
//	s, err := server.New(d, server.Options{Tracer: tracer})
//	err = tracer.Stop(ctx)
package tracing

import (
	"context"
	"net/http"
	"os"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.30.0"
)

// Tracer makes spans of requests. The zero Tracer, and nil, make none.
type Tracer struct{ provider *trace.TracerProvider }

// wanted reports whether the environment asks for traces.
func wanted() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}

	switch os.Getenv("OTEL_TRACES_EXPORTER") {
	case "":
		return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	case "otlp":
		return true
	}

	return false
}

// New returns what makes traces, if the environment asks for it: by OTEL_TRACES_EXPORTER=otlp, or with an
// OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT. They are sent by OTLP over HTTP. The other
// variables of OpenTelemetry say how: OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS. If it does
// not ask, New returns nil, which costs nothing. version is the program's.
func New(ctx context.Context, version string) (*Tracer, error) {
	if !wanted() {
		return nil, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}

	return of(ctx, trace.WithBatcher(exporter), version)
}

func of(ctx context.Context, to trace.TracerProviderOption, version string) (*Tracer, error) {
	r, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName("holdfast"), semconv.ServiceVersion(version)),
		resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, err
	}

	return &Tracer{trace.NewTracerProvider(to, trace.WithResource(r))}, nil
}

// Wrap returns a handler that makes a span of each request of a route, named by its method and the route's pattern.
// What clients say of the trace that a request belongs to is taken over.
func (t *Tracer) Wrap(route string, next http.Handler) http.Handler {
	if t == nil || t.provider == nil {
		return next
	}

	return otelhttp.NewHandler(next, route, otelhttp.WithTracerProvider(t.provider),
		otelhttp.WithPropagators(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{},
			propagation.Baggage{})),
		otelhttp.WithSpanNameFormatter(func(route string, r *http.Request) string { return r.Method + " " + route }))
}

// Stop sends what is left, until ctx ends.
func (t *Tracer) Stop(ctx context.Context) error {
	if t == nil || t.provider == nil {
		return nil
	}

	return t.provider.Shutdown(ctx)
}
