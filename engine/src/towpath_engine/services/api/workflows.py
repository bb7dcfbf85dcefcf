"""workflow.deploy, list, get."""

from msgspec import Raw

from towpath_engine.bus.interface import ApiRequest
from towpath_engine.core.faults import DefinitionRefused
from towpath_engine.services.api.errors import ApiFailureError
from towpath_engine.services.api.router import RequestReader
from towpath_engine.services.definitions import Definitions
from towpath_engine.services.queues import Queues
from towpath_engine.store.interface import Store, WorkflowVersion
from towpath_protocol.errors import ErrorCode
from towpath_protocol.replies import (
    DeployedWorkflow,
    WorkflowList,
    WorkflowSummary,
    WorkflowView,
)
from towpath_protocol.requests import DeployWorkflow, GetWorkflow, ListWorkflows
from towpath_protocol.times import format_instant


class Workflows:
    """Handlers of the group `workflow`."""

    def __init__(
        self, *, store: Store, definitions: Definitions, queues: Queues, reader: RequestReader
    ) -> None:
        self._store = store
        self._definitions = definitions
        self._queues = queues
        self._reader = reader

    async def deploy(self, request: ApiRequest) -> DeployedWorkflow:
        """workflow.deploy: check, create the queues' consumers, store; in this order."""
        body = self._reader.read(request, DeployWorkflow)
        document = bytes(body.definition)
        try:
            definition = await self._definitions.parse_new(document)
        except DefinitionRefused as refused:
            raise ApiFailureError(
                ErrorCode.DEFINITION_REFUSED,
                str(refused),
                {
                    "faults": [
                        {"path": fault.path, "message": fault.message, "code": fault.code}
                        for fault in refused.faults
                    ]
                },
            ) from refused
        if body.dry_run:
            return await self._would_be(definition.workflow, definition.fingerprint)
        await self._queues.ensure(definition.queues)
        row, created = await self._store.deploy_workflow(
            definition.workflow, definition.fingerprint, definition.document
        )
        self._definitions.put(row.workflow, row.version, definition)
        return DeployedWorkflow(
            workflow=row.workflow,
            version=row.version,
            fingerprint=row.fingerprint,
            created=created,
        )

    async def _would_be(self, workflow: str, fingerprint: str) -> DeployedWorkflow:
        """What a deploy would answer: the version that has this content, or the next number."""
        known = await self._store.find_workflow(workflow, fingerprint)
        newest = known or await self._store.get_workflow(workflow, None)
        version = 0 if newest is None else newest.version
        return DeployedWorkflow(
            workflow=workflow,
            version=version if known is not None else version + 1,
            fingerprint=fingerprint,
            created=False,
        )

    async def list_all(self, request: ApiRequest) -> WorkflowList:
        """workflow.list"""
        self._reader.read(request, ListWorkflows)
        rows = await self._store.list_workflows()
        return WorkflowList(
            workflows=tuple(
                WorkflowSummary(
                    workflow=row.workflow,
                    version=row.version,
                    fingerprint=row.fingerprint,
                    created_at=format_instant(row.created_at),
                )
                for row in rows
            )
        )

    async def get(self, request: ApiRequest) -> WorkflowView:
        """workflow.get"""
        body = self._reader.read(request, GetWorkflow)
        row = await self._store.get_workflow(body.workflow, body.version)
        if row is None:
            raise await self._not_found(body)
        return _view(row)

    async def _not_found(self, body: GetWorkflow) -> ApiFailureError:
        if body.version is not None and await self._store.get_workflow(body.workflow, None):
            return ApiFailureError(
                ErrorCode.VERSION_NOT_FOUND,
                f"workflow {body.workflow!r} has no version {body.version}",
            )
        return ApiFailureError(
            ErrorCode.WORKFLOW_NOT_FOUND, f"workflow {body.workflow!r} is not deployed"
        )


def _view(row: WorkflowVersion) -> WorkflowView:
    return WorkflowView(
        workflow=row.workflow,
        version=row.version,
        fingerprint=row.fingerprint,
        created_at=format_instant(row.created_at),
        definition=Raw(row.document),
    )
