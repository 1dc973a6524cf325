/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package provisioner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/sdk/initializer"
)

const (
	// maxAnswer bounds the body of a response, in bytes.
	maxAnswer = 1 << 20
	// excerpt bounds the part of a body in an error, in bytes.
	excerpt = 256
	// longestDelay bounds the delay of a retry that a server asks for.
	longestDelay = 10 * time.Minute
)

// exchange sends a request, and returns the response if it is successful. It sets the variable response
// in any case.
func (s *server) exchange(ctx context.Context, request *Request, target *url.URL, variables map[string]any) (map[string]any, error) {
	message, err := s.message(ctx, request, target, variables)
	if err != nil {
		return nil, err
	}
	what := request.Method + " " + target.Redacted()
	response, err := s.client.Do(message)
	if err != nil {
		return nil, fmt.Errorf("cannot send the request: %w", err) // err contains its method and URL
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read the response to %s: %w", what, err)
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the response to %s is longer than %d bytes", what, maxAnswer)
	}
	answer := answerOf(response, body)
	variables["response"] = answer
	klog.FromContext(ctx).V(2).Info("Answered", "request", what, "status", response.StatusCode)
	good, err := request.expect.Holds(variables)
	if err != nil {
		return nil, fmt.Errorf("cannot evaluate expect for the response to %s (%s): %w", what, response.Status, err)
	}
	if good {
		return answer, nil
	}
	return nil, refusal(request, response, variables, fmt.Errorf("%s: unexpected response %s: %s", what, response.Status, shorten(body)))
}

// message builds the request of one try.
func (s *server) message(ctx context.Context, request *Request, target *url.URL, variables map[string]any) (*http.Request, error) {
	var body io.Reader
	if request.body != nil {
		content, err := request.body.Render(variables)
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("cannot encode the body: %w", err)
		}
		body = bytes.NewReader(data)
	}
	message, err := http.NewRequestWithContext(ctx, request.Method, target.String(), body)
	if err != nil {
		return nil, err
	}
	message.Header.Set("Accept", "application/json")
	if body != nil {
		message.Header.Set("Content-Type", "application/json")
	}
	if key := initializer.IdempotencyKey(ctx); key != "" {
		message.Header.Set(s.config.IdempotencyHeader, key)
	}
	for name, text := range request.headers {
		value, err := text.Render(variables, nil)
		if err != nil {
			return nil, err
		}
		message.Header.Set(name, value)
	}
	return message, nil
}

// answerOf returns the variable of a response.
func answerOf(response *http.Response, body []byte) map[string]any {
	headers := map[string]any{}
	for name, values := range response.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	var content any
	_ = json.Unmarshal(body, &content) // null if it is not JSON
	return map[string]any{"status": response.StatusCode, "headers": headers, "body": content, "text": strings.ToValidUTF8(string(body), "\uFFFD")}
}

// refusal returns the error for an unsuccessful response: a permanent one, one with the delay that the
// server asks for, or one that is retried with the usual back-off.
func refusal(request *Request, response *http.Response, variables map[string]any, err error) error {
	if request.failWhen != nil {
		final, whenErr := request.failWhen.Holds(variables)
		if whenErr != nil {
			return errors.Join(err, whenErr)
		}
		if final {
			return initializer.Fail(err)
		}
	}
	if delay := retryAfter(response.Header.Get("Retry-After"), response.Header.Get("Date")); delay > 0 {
		return initializer.RetryAfter(err, min(delay, longestDelay))
	}
	return err
}

// retryAfter parses the header Retry-After, which has seconds or a time. The time is compared with the
// Date of the server.
func retryAfter(header, date string) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil {
		return time.Duration(min(seconds, int(longestDelay/time.Second))) * time.Second
	}
	at, err := http.ParseTime(header)
	now, dateErr := http.ParseTime(date)
	if err != nil || dateErr != nil {
		return 0
	}
	return at.Sub(now)
}

func shorten(body []byte) string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(body), "\uFFFD")), " ")
	if len(text) <= excerpt {
		return text
	}
	return strings.ToValidUTF8(text[:excerpt], "") + "..." // without the part of a character
}
