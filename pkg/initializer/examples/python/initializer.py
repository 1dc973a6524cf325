#!/usr/bin/env python3
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

"""An initializer that uses only the standard library, as docs/protocol.md explains.

It writes a ConfigMap into each new namespace and, as a participant, prints the name of each
namespace that is deleted. Without flags, it uses the service account of its pod.
"""

import argparse
import datetime
import http.client
import json
import os
import ssl
import threading
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request

POD = "/var/run/secrets/kubernetes.io/serviceaccount/"
LIFECYCLES = "/apis/nsinit.dev/v1alpha1/namespacelifecycles"
CONFIGURATIONS = "/apis/nsinit.dev/v1alpha1/namespaceinitializerconfigurations"
PATCH = "application/strategic-merge-patch+json"


# What a request raises if the server or the network fails. A proxy can cut an answer.
FAILURES = (OSError, ValueError, http.client.HTTPException)


class Over(Exception):
    """The turn is over, or the namespace is gone."""


class Client:
    """A client of kube-apiserver."""

    def __init__(self, server, ca, token_file):
        self.server, self.token_file = server, token_file
        self.context = ssl.create_default_context(cafile=ca)
        self.context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the CA of many clusters lacks an authority key identifier

    def open(self, method, path, body=None, content_type="application/json", timeout=60):
        """Send a request. Kubernetes replaces the token in the file, so it is read each time."""
        request = urllib.request.Request(self.server + path, method=method, data=json.dumps(body).encode() if body else None)
        with open(self.token_file, encoding="utf-8") as token:
            request.add_header("Authorization", "Bearer " + token.read().strip())
        request.add_header("Content-Type", content_type)
        return urllib.request.urlopen(request, context=self.context, timeout=timeout)

    def call(self, method, path, body=None, content_type="application/json"):
        """Send a request, and return the object of the answer."""
        with self.open(method, path, body, content_type) as response:
            return json.load(response)


def follow(client, selector, act):
    """Call act for each NamespaceLifecycle that a field selector selects, at its start and after each change."""
    query = "?fieldSelector=" + urllib.parse.quote(selector)
    while True:
        try:
            listed = client.call("GET", LIFECYCLES + query)
            for lifecycle in listed["items"]:
                attempt(act, lifecycle)
            version = listed["metadata"]["resourceVersion"]
            # The server ends the watch after this time. The next list repeats what failed.
            watch = f"{LIFECYCLES}{query}&watch=true&timeoutSeconds=30&resourceVersion={version}"
            with client.open("GET", watch, timeout=60) as events:
                for line in events:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    if event["type"] != "DELETED":
                        attempt(act, event["object"])
        except FAILURES as err:
            print(f"cannot watch: {err}", flush=True)
            time.sleep(1)


def attempt(act, lifecycle):
    """Call act. After an error, the next list repeats the call, so act must be idempotent."""
    try:
        act(lifecycle)
    except Over as over:
        print(f"{lifecycle['metadata']['name']}: {over}", flush=True)
    except FAILURES as err:
        print(f"{lifecycle['metadata']['name']}: {err}", flush=True)


class Initializer:
    """What the program does in a turn, and when a namespace is deleted."""

    def __init__(self, client, name, configuration):
        self.client, self.name, self.configuration = client, name, configuration

    def initialize(self, lifecycle):
        """Do the work of a turn, and end it."""
        namespace = lifecycle["metadata"]["name"]
        try:  # the watch also delivers the changes that this program made before the end of the turn
            lifecycle = self.client.call("GET", f"{LIFECYCLES}/{namespace}")
            live = self.client.call("GET", f"/api/v1/namespaces/{namespace}")
        except urllib.error.HTTPError as err:
            raise self.over(err) from err
        meta = live["metadata"]
        if (self.name not in lifecycle["status"].get("currentInitializers", []) or meta["uid"] != lifecycle["spec"]["namespaceUID"]
                or "nsinit.dev/initializing" not in meta.get("labels", {}) or "deletionTimestamp" in meta):
            return
        self.report(lifecycle, "writing the greeting")
        # Server-side apply has the same result when it is repeated.
        greeting = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "greeting"}, "data": {"from": "Python"}}
        self.client.call("PATCH", f"/api/v1/namespaces/{namespace}/configmaps/greeting?fieldManager={self.name}&force=true", greeting,
                         "application/apply-patch+yaml")
        if meta["labels"].get("greeting") == "refused":
            self.patch(lifecycle, "initialize", {"spec": {"initializers": {
                "failedInitializer": self.name,
                "result": {"status": "Failure", "reason": "Invalid", "message": "the label greeting is refused"}}}})
            return
        ended = self.patch(lifecycle, "initialize", {"spec": {"initializers": {"pending": [{"$patch": "delete", "name": self.name}]}}})
        if self.name in ended["spec"].get("skipped", []):
            raise Over("the initializer was skipped meanwhile")
        print(f"{namespace}: done", flush=True)

    def finalize(self, lifecycle):
        """Clean up after a namespace, and release it."""
        if self.name not in lifecycle["spec"].get("finalizers", []):
            return
        namespace = lifecycle["metadata"]["name"]
        print(f"{namespace}: cleaned up", flush=True)
        lifecycle["spec"]["finalizers"].remove(self.name)
        try:  # the resourceVersion is that of the watch: after a conflict, the next event follows
            self.client.call("PUT", f"{LIFECYCLES}/{namespace}/finalize", lifecycle)
        except urllib.error.HTTPError as err:
            raise self.over(err) from err

    def report(self, lifecycle, message):
        """Show a message in the status. The turn goes on."""
        self.patch(lifecycle, "status", {"status": {"initializers": [{"name": self.name, "message": message}]}})

    def patch(self, lifecycle, subresource, body):
        """Patch a subresource of this NamespaceLifecycle, not of another one with the same name."""
        body["metadata"] = {"uid": lifecycle["metadata"]["uid"]}
        try:
            return self.client.call("PATCH", f"{LIFECYCLES}/{lifecycle['metadata']['name']}/{subresource}", body, PATCH)
        except urllib.error.HTTPError as err:
            raise self.over(err) from err

    @staticmethod
    def over(err):
        """Return Over for an answer that ends the turn, or the error itself."""
        return Over(err.read().decode()) if err.code in (404, 409, 422) else err

    def serve(self):
        """Report every 20 seconds that the initializer is served."""
        while True:
            now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            try:
                self.client.call("PATCH", f"{CONFIGURATIONS}/{self.configuration}/status",
                                 {"status": {"initializers": [{"name": self.name, "reportTime": now}]}}, PATCH)
            except FAILURES as err:
                print(f"cannot report: {err}", flush=True)
            time.sleep(20)


def or_exit(target):
    """Run a function that never returns. If it fails, end the process, so that it is started again."""
    try:
        target()
    finally:
        traceback.print_exc()
        os._exit(1)


def main():
    """Run until the process is killed."""
    in_pod = f"https://{os.environ.get('KUBERNETES_SERVICE_HOST', 'kubernetes.default.svc')}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--name", required=True, help="name of the initializer")
    flags.add_argument("--configuration", required=True, help="NamespaceInitializerConfiguration that registers it")
    flags.add_argument("--server", default=in_pod, help="URL of kube-apiserver")
    flags.add_argument("--ca", default=POD + "ca.crt", help="file with the CA of kube-apiserver")
    flags.add_argument("--token", default=POD + "token", help="file with the token")
    options = flags.parse_args()
    initializer = Initializer(Client(options.server, options.ca, options.token), options.name, options.configuration)
    for target in (
        initializer.serve,
        lambda: follow(initializer.client, "status.phase=Terminating", initializer.finalize),
    ):
        threading.Thread(target=or_exit, args=(target,), daemon=True).start()
    follow(initializer.client, "status.currentInitializer=" + options.name, initializer.initialize)


if __name__ == "__main__":
    main()
