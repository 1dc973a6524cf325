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
import signal
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


class Refused(OSError):
    """An answer of the server that is no success. Its text names, for example, the permission that is missing."""

    def __init__(self, err):
        body = err.read().decode(errors="replace")
        try:
            body = json.loads(body)["message"]
        except (ValueError, KeyError, TypeError):
            pass  # a proxy answered
        super().__init__(body or str(err))
        self.code = err.code


class Client:
    """A client of kube-apiserver."""

    def __init__(self, server, ca, token_file):
        self.server, self.ca, self.token_file = server, ca, token_file

    def open(self, method, path, body=None, content_type="application/json", timeout=60):
        """Send a request. Kubernetes replaces the token and the CA in their files, so both are read each time."""
        context = ssl.create_default_context(cafile=self.ca)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the CA of many clusters lacks an authority key identifier
        request = urllib.request.Request(self.server + path, method=method, data=json.dumps(body).encode() if body else None)
        with open(self.token_file, encoding="utf-8") as token:
            request.add_header("Authorization", "Bearer " + token.read().strip())
        request.add_header("Content-Type", content_type)
        try:
            return urllib.request.urlopen(request, context=context, timeout=timeout)
        except urllib.error.HTTPError as err:
            raise Refused(err) from err

    def call(self, method, path, body=None, content_type="application/json"):
        """Send a request, and return the object of the answer."""
        with self.open(method, path, body, content_type) as response:
            return json.load(response)


class Initializer:
    """What the program does in a turn, and when a namespace is deleted."""

    def __init__(self, client, name, configuration):
        self.client, self.name, self.configuration = client, name, configuration
        # The program does one thing at a time, so it does not clean up while it still works in the namespace.
        self.acting = threading.Lock()
        # Set while the program can list what it has to do.
        self.listed = threading.Event()

    def follow(self, selector, act):
        """Call act for each NamespaceLifecycle that a field selector selects, at its start and after each change."""
        query = "?fieldSelector=" + urllib.parse.quote(selector)
        while True:
            failed = set()  # the next list repeats these, and an event for the report of an error does not
            try:
                listed = self.client.call("GET", LIFECYCLES + query)
                self.listed.set()
                for lifecycle in listed["items"]:
                    self.attempt(act, lifecycle, failed)
                # The server ends the watch after this time.
                watch = f"{LIFECYCLES}{query}&watch=true&timeoutSeconds=10&resourceVersion={listed['metadata']['resourceVersion']}"
                with self.client.open("GET", watch) as events:
                    for line in events:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            break
                        if event["type"] != "DELETED":
                            self.attempt(act, event["object"], failed)
            except FAILURES as err:
                self.listed.clear()
                print(f"cannot watch: {err}", flush=True)
            time.sleep(1)  # also after a watch that ended early

    def attempt(self, act, lifecycle, failed):
        """Call act. After an error, the next list repeats the call, so act must be idempotent."""
        name, uid = lifecycle["metadata"]["name"], lifecycle["metadata"]["uid"]
        if uid in failed:
            return
        try:
            with self.acting:
                act(lifecycle)
        except Over as over:
            print(f"{name}: {over}", flush=True)
        except FAILURES as err:
            failed.add(uid)
            print(f"{name}: {err}", flush=True)

    def initialize(self, lifecycle):
        """Do the work of a turn, and end it. Users see an error in the status, until the next try."""
        live = self.turn(lifecycle)
        if not live:
            return  # the watch also delivers the changes that this program made before the end of the turn
        try:
            self.work(lifecycle, live)
        except FAILURES as err:
            self.report(lifecycle, str(err))
            raise

    def work(self, lifecycle, live):
        """Write the greeting, or fail."""
        namespace = live["metadata"]["name"]
        self.report(lifecycle, "writing the greeting")
        # Server-side apply has the same result when it is repeated.
        greeting = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "greeting"}, "data": {"from": "Python"}}
        self.client.call("PATCH", f"/api/v1/namespaces/{namespace}/configmaps/greeting?fieldManager={self.name}&force=true", greeting,
                         "application/apply-patch+yaml")
        if live["metadata"]["labels"].get("greeting") == "refused":
            self.patch(lifecycle, "initialize", {"spec": {"initializers": {
                "failedInitializer": self.name,
                "result": {"status": "Failure", "reason": "Invalid", "message": "the label greeting is refused"}}}})
            return
        ended = self.patch(lifecycle, "initialize", {"spec": {"initializers": {"pending": [{"$patch": "delete", "name": self.name}]}}})
        if self.name in ended["spec"].get("skipped", []):
            raise Over("the initializer was skipped meanwhile")
        print(f"{namespace}: done", flush=True)

    def turn(self, lifecycle):
        """Return the namespace in which the initializer has its turn, or nothing if the turn is over."""
        name = lifecycle["metadata"]["name"]
        try:
            current = self.client.call("GET", f"{LIFECYCLES}/{name}")
            live = self.client.call("GET", f"/api/v1/namespaces/{name}")
        except Refused as err:
            if err.code == 404:
                return None
            raise
        meta = live["metadata"]
        if (current["metadata"]["uid"] == lifecycle["metadata"]["uid"] and self.name in current["status"].get("currentInitializers", [])
                and meta["uid"] == current["spec"]["namespaceUID"]
                and "nsinit.dev/initializing" in meta.get("labels", {}) and "deletionTimestamp" not in meta):
            return live
        return None

    def finalize(self, lifecycle):
        """Clean up after a namespace, and release it."""
        if self.name not in lifecycle["spec"].get("finalizers", []):
            return
        namespace = lifecycle["metadata"]["name"]
        print(f"{namespace}: cleaned up", flush=True)
        lifecycle["spec"]["finalizers"].remove(self.name)
        try:  # the resourceVersion is that of the watch: after a conflict, the next event follows
            self.client.call("PUT", f"{LIFECYCLES}/{namespace}/finalize", lifecycle)
        except Refused as err:
            if err.code in (404, 409):
                raise Over(err) from err
            raise

    def report(self, lifecycle, message):
        """Show a message, of at most 4096 bytes, in the status. The turn goes on."""
        message = message.encode()[:4096].decode(errors="ignore")
        self.patch(lifecycle, "status", {"status": {"initializers": [{"name": self.name, "message": message}]}})

    def patch(self, lifecycle, subresource, body):
        """Patch a subresource of this NamespaceLifecycle, not of another one with the same name."""
        body["metadata"] = {"uid": lifecycle["metadata"]["uid"]}
        try:
            return self.client.call("PATCH", f"{LIFECYCLES}/{lifecycle['metadata']['name']}/{subresource}", body, PATCH)
        except Refused as err:
            if err.code in (404, 409, 422) and not self.turn(lifecycle):
                raise Over(err) from err
            raise

    def serve(self):
        """Report every 20 seconds that the initializer is served."""
        while self.listed.wait():
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
    """Run until the process is killed. As the first process of a container, it gets SIGTERM only with a handler."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
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
        lambda: initializer.follow("status.phase=Terminating", initializer.finalize),
    ):
        threading.Thread(target=or_exit, args=(target,), daemon=True).start()
    initializer.follow("status.currentInitializer=" + options.name, initializer.initialize)


if __name__ == "__main__":
    main()
