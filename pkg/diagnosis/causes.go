/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"maps"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// Cause is why a namespace is not in the state that a user expects. causes says what each one means.
type Cause string

// The causes.
const (
	InitializerPending        Cause = "InitializerPending"
	InitializerNotServed      Cause = "InitializerNotServed"
	InitializerSlow           Cause = "InitializerSlow"
	InitializationFailed      Cause = "InitializationFailed"
	ObjectsMissing            Cause = "ObjectsMissing"
	QuotaNotInForce           Cause = "QuotaNotInForce"
	PlanDegraded              Cause = "PlanDegraded"
	ObjectInitializerPending  Cause = "ObjectInitializerPending"
	ParticipantPending        Cause = "ParticipantPending"
	FormerIncarnation         Cause = "FormerIncarnation"
	NsinitFailing             Cause = "NsinitFailing"
	NsinitUnavailable         Cause = "NsinitUnavailable"
	NsinitUninstalled         Cause = "NsinitUninstalled"
	NsinitRefuses             Cause = "NsinitRefuses"
	NsinitControllerDown      Cause = "NsinitControllerDown"
	LifecycleMissing          Cause = "LifecycleMissing"
	APIUnavailable            Cause = "APIUnavailable"
	DiscoveryFailed           Cause = "DiscoveryFailed"
	ListFailed                Cause = "ListFailed"
	WebhookRefusesDeletion    Cause = "WebhookRefusesDeletion"
	WebhookUnavailable        Cause = "WebhookUnavailable"
	PolicyRefusesDeletion     Cause = "PolicyRefusesDeletion"
	DeletionRefused           Cause = "DeletionRefused"
	ContentDeletionFailed     Cause = "ContentDeletionFailed"
	ContentFinalizer          Cause = "ContentFinalizer"
	GracePeriod               Cause = "GracePeriod"
	ClaimLost                 Cause = "ClaimLost"
	NamespaceFinalizer        Cause = "NamespaceFinalizer"
	SpecFinalizer             Cause = "SpecFinalizer"
	FinalizersEmptied         Cause = "FinalizersEmptied"
	OrphanedContent           Cause = "OrphanedContent"
	NamespaceControllerSilent Cause = "NamespaceControllerSilent"
	NamespaceControllerAtWork Cause = "NamespaceControllerAtWork"
	DeletionProtected         Cause = "DeletionProtected"
	NamespaceFrozen           Cause = "NamespaceFrozen"
)

// rules returns every rule.
func rules() []rule { return append(otherRules(), namespaceController) }

// otherRules returns the rules but for namespaceController, which depends on their findings.
func otherRules() []rule {
	return []rule{
		initializers, quotas, missingObjects, degradedPlan, waitingObjects, participants, failing, brokenInstallation, missingLifecycle,
		unavailableAPIs, undiscovered, unlistable, refusedDeletions, refusedUpdates, failedDeletions, lostClaims,
		finalizedContent, gracePeriods, longGracePeriods, namespaceFinalizers, emptiedFinalizers, orphans, protection, frozen,
	}
}

// entry describes a cause.
type entry struct {
	cause Cause
	// meaning is what docs/why.md says of the cause.
	meaning string
	// remedies are what helps, the safest first.
	remedies []remedy
}

// remedy is a Remedy whose command names words of the finding as $WORD. It is offered if the finding has these words, if they can
// be in a command, and if it has the words in when or, for !WORD, does not have the word.
type remedy struct{ description, command, risk, when string }

// words are the words of a finding: the values for each $WORD of a command, which come from the cluster. Most have one value.
type words map[string][]string

// has reports whether a word has a value.
func (w words) has(word string) bool { return len(w[word]) > 0 && w[word][0] != "" }

// newFinding returns a finding with the remedies of its cause.
func newFinding(cause Cause, state State, since *metav1.Time, message string, w words) Finding {
	f := Finding{Cause: cause, State: state, Since: since, Message: message, Subject: subject(w)}
	table := causes()
	for _, r := range table[indexOf(table, cause)].remedies {
		offered := true
		for condition := range strings.FieldsSeq(r.when) {
			word, negated := strings.CutPrefix(condition, "!")
			offered = offered && w.has(word) != negated
		}
		command := os.Expand(r.command, func(word string) string {
			text, ok := printable.Words(w[word])
			// In the quotes of a jq program, only a word that needs no quotes is what it is.
			offered = offered && ok && (printable.IsPlain(text) || !strings.Contains(r.command, `"$`+word+`"`))
			return text
		})
		if offered {
			f.Remedies = append(f.Remedies, Remedy{Description: r.description, Command: command, Risk: r.risk})
		}
	}
	return f
}

// subject returns what a finding with these words is about. Of other words, such as the first of several objects, the value
// can change while the finding remains.
func subject(w words) string {
	var all []string
	for _, word := range []string{"FINALIZER", "NAMEREUSE", "PARTICIPANT", "INITIALIZER", "APISERVICE", "PATH", "RESOURCE", "WEBHOOKS", "POLICY", "NODE", "QUOTA"} {
		if w.has(word) {
			all = append(all, word+"="+strings.Join(w[word], " "))
		}
	}
	return strings.Join(all, " ")
}

// finding returns a finding about the namespace.
func (o Observation) finding(cause Cause, state State, since *metav1.Time, message string, w words) Finding {
	if o.hypothetical && since != nil && !since.Time.Before(o.Time) {
		since = nil // it has not begun
	}
	all := words{"NAMESPACE": {o.Name}}
	maps.Copy(all, w)
	return o.Installation.finding(cause, state, since, message, all)
}

// causes returns the table of causes, in the order in which findings are shown.
func causes() []entry {
	return slices.Concat(lifecycleCauses(), nsinitCauses(), apiCauses(), contentCauses(), namespaceCauses())
}

func indexOf(table []entry, cause Cause) int {
	return slices.IndexFunc(table, func(e entry) bool { return e.cause == cause })
}

const (
	controllerLogs    = "kubectl --namespace $INSTALLED logs deployment/" + installation.ControllerManager + " --tail=50"
	serverLogs        = "kubectl --namespace $INSTALLED logs --selector app.kubernetes.io/name=" + installation.APIServer + " --tail=50"
	listPods          = "kubectl --namespace $INSTALLED get pods"
	restart           = "kubectl --namespace $INSTALLED rollout restart "
	describeLifecycle = "kubectl describe namespacelifecycle $NAMESPACE"
	dropFinalizer     = ` --output json | jq '.metadata.finalizers -= ["$FINALIZER"]' | kubectl replace -f -`
	getNamespace      = "kubectl get namespace $NAMESPACE --output json | jq "
	finalize          = " | kubectl replace --raw /api/v1/namespaces/$NAMESPACE/finalize -f -"

	startController = "start or fix the controller that removes it; if it was uninstalled, install it again until the namespace is removed"
	readItsLog      = "read the log of the controller: it runs, so it waits for something or fails"
	startItAgain    = "scale the controller up: its workload has no replicas, and nothing else removes the finalizer"
	logsOfWorkload  = "kubectl --namespace $RUNSIN logs $WORKLOAD --all-containers --tail=50"
	scaleWorkload   = "kubectl --namespace $RUNSIN scale $WORKLOAD --replicas=1"
	doAsRefusalAsks = "do what the refusal asks for"
	opensWithout    = "the namespace opens without what the initializer provides"
	noParticipants  = "participants that have to clean up after the namespace do not act any more"
	unreachable     = "objects that its server stored cannot be reached any more, and what they represent is not cleaned up"
	inUse           = "until it is deleted, the content is in use: workloads start, and permissions apply"
	putBack         = `put the finalizer "kubernetes" back, so that the content is deleted and the namespace is removed`
	remains         = "what it has to clean up remains, perhaps outside the cluster"

	// remainsAndEmpties is the risk of releasing a participant that holds the content.
	remainsAndEmpties = remains + ", and the content of the namespace is then deleted, unless another participant keeps it"
)

func lifecycleCauses() []entry {
	const startProgram = "scale its program up: its workload has no replicas"
	const actInItsPlace, release = "if the participant does not exist any more, act in its place", "kubectl nsinit finalize $NAMESPACE $PARTICIPANT"
	participant := []remedy{
		{description: "contact your platform team", when: "TENANT"},
		{description: startProgram, command: scaleWorkload, when: "STOPPED"},
		{description: "read the NamespaceLifecycle", command: describeLifecycle, when: "PARTICIPANT"},
		{description: "check whether the participant runs, and read its log", when: "PARTICIPANT"},
		{description: "list the pods of the participant", command: "kubectl --namespace $PODS get pods"},
		{description: actInItsPlace, command: release, risk: remains, when: "REMOVABLE !HOLDER"},
		{description: actInItsPlace, command: release, risk: remainsAndEmpties, when: "REMOVABLE HOLDER"},
	}
	return []entry{
		{InitializerPending, "an initializer has not finished. The cause is stuck while the condition `Stalled` reports the turn of the initializer", []remedy{
			{description: "contact your platform team", when: "TENANT"},
			{description: startProgram, command: scaleWorkload, when: "STOPPED"},
			{description: "read the NamespaceLifecycle", command: describeLifecycle, when: "INITIALIZER"},
			{description: "check whether the initializer runs, and read its log", when: "INITIALIZER"},
			{description: "list the pods of the initializer", command: "kubectl --namespace $PODS get pods"},
			{description: "if it cannot be fixed soon, skip it in this namespace", command: "kubectl nsinit skip $NAMESPACE $INITIALIZER", risk: opensWithout},
		}},
		{InitializerNotServed, "no program reports that it serves the initializer. The cause is stuck if a program sent such reports before", []remedy{
			{description: startProgram, command: scaleWorkload, when: "STOPPED"},
			{description: "start the program of the initializer", when: "NEVER"},
			{description: "check whether the program of that user runs, and read its log", when: "REPORTED"},
			{description: "list the pods of the initializer", command: "kubectl --namespace $PODS get pods"},
			{description: "show the last report of each initializer", command: "kubectl describe nsic $CONFIGURATION"},
			{description: "if a person does the work, remove the initializer when it is done", command: "kubectl nsinit done $NAMESPACE $INITIALIZER", risk: "if the work is not done, the namespace opens without it", when: "NEVER"},
		}},
		{InitializerSlow, "the turn of the initializer is stalled, although its program reports that it runs", []remedy{
			{description: "read the log of the program: it waits for something, or retries"},
			{description: "list the pods of the initializer", command: "kubectl --namespace $PODS get pods"},
		}},
		{InitializationFailed, "the initialization failed, and nsinit deletes the namespace. If the namespace is not deleted, kube-apiserver refuses the deletion", []remedy{
			{description: "read the failure, and fix its cause before you create the namespace again", command: describeLifecycle},
		}},
		{ObjectsMissing, "an object of `--required-objects` does not exist. The cause is stuck if the namespace was opened without the object", []remedy{
			{description: "check whether kube-controller-manager runs, and read its log: it creates these objects in every namespace"},
			{description: "see which of them exist", command: "kubectl --namespace $NAMESPACE get serviceaccount/default configmap/kube-root-ca.crt"},
			{description: "if your cluster does not create them, set --required-objects of nsinit-controller-manager"},
		}},
		{QuotaNotInForce, "kube-controller-manager has not counted the resources of a ResourceQuota in a closed namespace. The cause is stuck if this takes longer than `--patience`", []remedy{
			{description: "check whether kube-controller-manager runs, and read its log: its quota controller writes the status"},
			{description: "if it runs, remove what it cannot count from the quota, such as count/ of a kind that does not exist"},
			{description: "see which resources it has counted", command: "kubectl --namespace $NAMESPACE describe resourcequota $QUOTA"},
		}},
		{PlanDegraded, "the plan differs from the configurations. This is a note, because the namespace opens anyway", []remedy{
			{description: "see the plan, and why other initializers are left out", command: "kubectl nsinit plan $NAMESPACE"},
			{description: "correct the configuration that the message names; this changes the plans of new namespaces"},
		}},
		{ObjectInitializerPending, "pods or Jobs wait for an [initializer](objects.md). The cause is stuck if no InitializerConfiguration registers the initializer. It is also stuck if this takes longer than `--patience`, and `why` does not know of a program that serves the initializer", []remedy{
			{description: "contact your platform team", when: "TENANT"},
			{description: "if you removed the configuration, the component or nsinit, release the objects with the commands of docs/objects.md (Remove a configuration or the component)", when: "UNREGISTERED", risk: "the objects run without what their initializers provide"},
			{description: "start the program of the initializer, or check why it does not run", when: "!SERVED !UNREGISTERED"},
			{description: "read the log of the program: it waits for something, or retries", when: "SERVED"},
			{description: "list the pods of the initializer", command: "kubectl --namespace $PODS get pods"},
			{description: "show the last report of each initializer", command: "kubectl describe initializerconfiguration $CONFIGURATION"},
			{description: "let one pod run without initializers", command: `kubectl --namespace $NAMESPACE patch $POD --type=merge --patch='{"spec":{"schedulingGates":null}}'`, risk: "the pod runs without what its initializers provide. This also removes gates of others"},
			{description: "skip the initializer for one Job", command: "kubectl --namespace $NAMESPACE label $JOB " + v1alpha1.PendingPrefix + "$INITIALIZER-", risk: "the Job runs without what the initializer provides"},
		}},
		{ParticipantPending, "a participant has not cleaned up after the namespace", participant},
		{FormerIncarnation, "a participant has not cleaned up after a former namespace of the same name", participant},
	}
}

func nsinitCauses() []entry {
	return []entry{
		{NsinitFailing, "nsinit-controller-manager fails to take the next step. The condition `Failing` of the namespace shows the error", []remedy{
			{description: "fix the cause in the message; nsinit retries", when: "FAILING"},
			{description: "check the installation and its storage", command: "kubectl nsinit check"},
			{description: "read the log of nsinit-controller-manager", command: controllerLogs},
		}},
		{NsinitUnavailable, "kube-apiserver cannot reach nsinit-apiserver", []remedy{
			{description: "read why kube-apiserver cannot reach it", command: "kubectl describe apiservice $APISERVICE"},
			{description: "check whether its service exists, and has endpoints that are ready", command: showService},
			{description: "check whether nsinit-apiserver runs, and read its log", command: listPods + "; " + serverLogs},
			{description: "restart it", command: restart + "deployment,statefulset --selector app.kubernetes.io/name=" + installation.APIServer},
			{description: "if you do not need nsinit any more, uninstall it in the order that docs/uninstall.md gives", risk: "without the gate, every user can write to namespaces that are not initialized; participants in deletions do not act any more"},
		}},
		{NsinitUninstalled, "the namespace waits for nsinit, but nsinit is not installed", []remedy{
			{description: "install nsinit again as docs/install.md says, with its configurations"},
			{description: "if you uninstalled it, open the namespace as it is", command: "kubectl label namespace $NAMESPACE $LABEL-", risk: "the namespace opens without what its initializers provide"},
			{description: "if you uninstalled it, remove nsinit's finalizer, so that the namespace is removed", command: "kubectl get namespace $NAMESPACE" + dropFinalizer, risk: noParticipants},
			{description: "if you uninstalled it, remove nsinit's finalizers, and let Kubernetes delete the content of the namespace", when: "CONTENT",
				command: getNamespace + `'.metadata.finalizers -= ["$CONTENT", "` + v1alpha1.NamespaceFinalizer + `"] | .spec.finalizers |= (. + ["kubernetes"] | unique)'` + finalize,
				risk:    noParticipants},
		}},
		{NsinitRefuses, "nsinit-apiserver does not serve NamespaceLifecycles, for example because its storage was lost", []remedy{
			{description: "do what the error says; for a storage that was lost, see docs/storage.md"},
			{description: "read the log of nsinit-apiserver", command: serverLogs},
		}},
		{NsinitControllerDown, "no instance of nsinit-controller-manager runs", []remedy{
			{description: "check whether it runs, and read its log", command: listPods + "; " + controllerLogs},
			{description: "restart it", command: restart + "deployment/" + installation.ControllerManager},
		}},
		{LifecycleMissing, "nsinit-controller-manager has not created the NamespaceLifecycle, or has not removed the finalizer of nsinit from the namespace after the cleanup", []remedy{
			{description: "read the log of nsinit-controller-manager", command: controllerLogs},
		}},
	}
}

const showService = "kubectl --namespace $SERVER get service $SERVICE; kubectl --namespace $SERVER get endpointslices --selector kubernetes.io/service-name=$SERVICE"

func apiCauses() []entry {
	return []entry{
		{APIUnavailable, "the server of an aggregated API is unavailable, so Kubernetes removes no namespace", []remedy{
			{description: "read why kube-apiserver cannot reach it", command: "kubectl describe apiservice $APISERVICE"},
			{description: "check whether its service exists, and has endpoints that are ready", command: showService},
			{description: "start or fix its server", command: "kubectl --namespace $SERVER get pods"},
			{description: "if no client needs the API any more, remove it", command: "kubectl delete apiservice $APISERVICE", risk: unreachable},
		}},
		{DiscoveryFailed, "the discovery of an API fails, although the APIService of this API reports no failure", []remedy{
			{description: "read what its server answers", command: "kubectl get --raw $PATH"},
			{description: "see which server serves it", command: "kubectl get apiservices"},
		}},
		{ListFailed, "the objects of a resource cannot be listed, so they cannot be deleted", []remedy{
			{description: "read what the server answers", command: "kubectl --namespace $NAMESPACE get $RESOURCE"},
			{description: "if a conversion webhook does not answer, fix the service that the custom resource definition names", command: "kubectl get customresourcedefinition $RESOURCE --output jsonpath={.spec.conversion}"},
		}},
	}
}

func contentCauses() []entry {
	return []entry{
		{WebhookRefusesDeletion, "an admission webhook refuses the deletion of objects, or the removal of their finalizers", []remedy{
			{description: doAsRefusalAsks},
			{description: "see which server answers, and for which requests", command: "kubectl get $WEBHOOKS --output yaml"},
			{description: "exempt this namespace in the webhook's namespaceSelector", command: "kubectl edit $WEBHOOK", risk: "the webhook does not check this namespace any more"},
		}},
		{WebhookUnavailable, "an admission webhook for deletions or for the removal of finalizers does not answer. This is a note if the failurePolicy of the webhook is `Ignore`", []remedy{
			{description: "see which service it is, and start or fix it", command: "kubectl get $WEBHOOKS --output yaml"},
			{description: "if the service was uninstalled, remove its webhooks", command: "kubectl delete $WEBHOOK", risk: "what the webhooks check or change is not checked or changed any more"},
		}},
		{PolicyRefusesDeletion, "a ValidatingAdmissionPolicy refuses a deletion, or the removal of a finalizer", []remedy{
			{description: doAsRefusalAsks},
			{description: "read the policy", command: "kubectl get validatingadmissionpolicy $POLICY --output yaml"},
			{description: "exempt this namespace in the binding, or remove the binding", command: "kubectl edit validatingadmissionpolicybinding $BINDING", risk: "the policy does not protect these objects any more"},
		}},
		{DeletionRefused, "kube-apiserver refuses a deletion, or the removal of a finalizer, and the cause is neither a webhook nor a policy", []remedy{{description: doAsRefusalAsks}}},
		{ContentDeletionFailed, "the namespace controller cannot delete objects, although you can delete them", []remedy{
			{description: "if you have just fixed the cause, wait a minute: it retries"},
			{description: "see what refuses the deletion, by trying as the namespace controller does", command: "kubectl nsinit why $NAMESPACE --as=system:serviceaccount:kube-system:namespace-controller --as-group=system:serviceaccounts --as-group=system:serviceaccounts:kube-system --as-group=system:authenticated"},
		}},
		{ContentFinalizer, "objects in the namespace are terminating, and wait until a controller removes a finalizer", []remedy{
			{description: startItAgain, command: scaleWorkload, when: "STOPPED"},
			{description: readItsLog, command: logsOfWorkload, when: "LOGS"},
			{description: readItsLog, when: "NOLOGS"},
			{description: "check what the finalizer waits for", command: "kubectl --namespace $WHERE get $WHAT"},
			{description: "read the object, and which client set the finalizer", command: "kubectl --namespace $NAMESPACE get $OBJECT --output yaml --show-managed-fields"},
			{description: startController, when: "START"},
			{description: "if the controller does not exist any more, remove the finalizer from each object", command: "kubectl --namespace $NAMESPACE get $OBJECT" + dropFinalizer, risk: remains, when: "REMOVABLE"},
		}},
		{GracePeriod, "objects in the namespace are terminating. Their grace period is not over, or the objects still exist after their grace period", []remedy{
			{description: "read the state of the object", command: "kubectl --namespace $NAMESPACE describe $OBJECT"},
			{description: "check whether the node exists and is Ready, and repair it", command: "kubectl get node $NODE"},
			{description: "if the machine is off and does not return, remove the node and with it the pods", command: "kubectl delete node $NODE", risk: "if the machine is on, its containers continue, and Kubernetes does not know it"},
			{description: "do not wait for the confirmation", command: "kubectl --namespace $NAMESPACE delete --grace-period=0 --force $PODS", risk: "if the node works, the containers can continue, with their volumes and their names"},
		}},
		{ClaimLost, "a PersistentVolumeClaim is in the phase `Lost`. This is a note, because the claim blocks no deletion", []remedy{
			{description: "read which volume it was", command: "kubectl --namespace $WHERE describe $CLAIMS"},
			{description: "restore the volume, or delete the claim when no pod needs it", command: "kubectl --namespace $WHERE get pods"},
		}},
	}
}

func namespaceCauses() []entry {
	const second = "delete the namespace again"
	const restore, remove = getNamespace + `'.spec.finalizers = ["kubernetes"]'` + finalize, "kubectl delete namespace $NAMESPACE"
	return []entry{
		{NamespaceFinalizer, "a controller has not removed its finalizer from `metadata.finalizers` of the namespace", []remedy{
			{description: startItAgain, command: scaleWorkload, when: "STOPPED"},
			{description: readItsLog, command: logsOfWorkload, when: "LOGS"},
			{description: readItsLog, when: "NOLOGS"},
			{description: "read the namespace, and which client set the finalizer", command: "kubectl get namespace $NAMESPACE --output yaml --show-managed-fields"},
			{description: startController, when: "START"},
			{description: "if the controller does not exist any more, remove this finalizer", command: "kubectl get namespace $NAMESPACE" + dropFinalizer, risk: remains, when: "REMOVABLE"},
		}},
		{SpecFinalizer, "a controller has not removed its finalizer from `spec.finalizers` of the namespace", []remedy{
			{description: startItAgain, command: scaleWorkload, when: "STOPPED"},
			{description: readItsLog, command: logsOfWorkload, when: "LOGS"},
			{description: readItsLog, when: "NOLOGS"},
			{description: startController, when: "START"},
			{description: "if the controller does not exist any more, remove this finalizer", command: getNamespace + `'.spec.finalizers -= ["$FINALIZER"]'` + finalize, risk: remains, when: "REMOVABLE"},
			{description: "wait some minutes: nsinit-controller-manager removes it", command: "kubectl nsinit check", when: "NAMEREUSE"},
			{description: "if you uninstalled nsinit, remove this finalizer", command: getNamespace + `'.spec.finalizers -= ["$NAMEREUSE"]'` + finalize, risk: "requests that are still in progress can be stored in the next namespace of this name"},
		}},
		{FinalizersEmptied, "a client emptied `spec.finalizers` before the namespace was deleted, so no controller deletes the content", []remedy{
			{description: second, command: remove, when: "EMPTY"},
			{description: putBack, command: restore},
			{description: second, command: remove, when: "CONTENT", risk: "the content remains stored, and is not visible until a namespace of this name is created again"},
		}},
		{OrphanedContent, "the namespace does not exist any more, but its content is still stored. A client emptied `spec.finalizers` during the deletion, or a late request created the content", []remedy{
			{description: "create the namespace again and delete it, which deletes its content", command: "kubectl create namespace $NAMESPACE && kubectl delete namespace $NAMESPACE", risk: inUse},
		}},
		{NamespaceControllerSilent, "kube-controller-manager does not run, or does not delete the content of the namespace", []remedy{
			{description: "check whether kube-controller-manager runs, and read its log", command: "kubectl --namespace kube-system get pods --selector component=kube-controller-manager; kubectl --namespace kube-system get lease kube-controller-manager"},
			{description: "on a control plane without it, run nsinit-controller-manager with --namespace-termination (docs/required-objects.md)"},
		}},
		{NamespaceControllerAtWork, "kube-controller-manager is deleting the content of the namespace, and no other cause is known", nil},
		{DeletionProtected, "kube-apiserver would refuse a deletion of the namespace. This is a note, unless nsinit has to delete the namespace", []remedy{
			{description: "if the namespace is to be deleted, " + doAsRefusalAsks},
		}},
		{NamespaceFrozen, "an administrator froze the namespace. This is a note, unless the content of the namespace has to be deleted", []remedy{
			{description: "ask the user who froze it"},
			{description: "unfreeze it", command: "kubectl nsinit unfreeze $NAMESPACE", risk: "tenants can write into the namespace again. If it is being deleted, its content is deleted"},
		}},
	}
}
