"""A recorded conversation with every kind of message, in both eras and every spelling.

Each line is who says it (`C` or `S`) and the exact bytes. Ids of the client's requests are not used twice.
"""

from __future__ import annotations

META = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":'
    b'{"name":"recorded","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}'
)

Line = tuple[str, bytes]

OLDER: list[Line] = [
    (
        "C",
        b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":'
        b'{"roots":{"listChanged":true},"sampling":{},"elicitation":{}},"clientInfo":{"name":"recorded","version":"1"}}}',
    ),
    (
        "S",
        b'{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
        b'"serverInfo":{"name":"s","version":"0"},"instructions":"caf\\u00e9"}}',
    ),
    ("C", b'{"jsonrpc":"2.0","method":"notifications/initialized"}'),
    ("C", b'{"jsonrpc": "2.0", "id": "ping-1", "method": "ping"}'),
    ("S", b'{"result":{},"id":"ping-1","jsonrpc":"2.0"}'),
    ("C", b'{"jsonrpc":"2.0","id":1.0,"method":"resources/list","params":{"cursor":""}}'),
    (
        "S",
        b'{"jsonrpc":"2.0","id":1,"result":{"resources":[{"uri":"file:///a","name":"a","size":1e3}],"nextCursor":""}}',
    ),
    ("C", b'{"jsonrpc":"2.0","id":2,"method":"resources/templates/list"}'),
    ("S", b'{"jsonrpc":"2.0","id":2,"result":{"resourceTemplates":[]}}'),
    ("C", b'{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"file:\\/\\/\\/a"}}'),
    (
        "S",
        b'{"jsonrpc":"2.0","id":3,"result":{"contents":[{"uri":"file:///a","text":"'
        + b"x" * 200_000
        + b'"}]}}',
    ),
    ("C", b'{"jsonrpc":"2.0","id":4,"method":"resources/subscribe","params":{"uri":"file:///a"}}'),
    ("S", b'{"jsonrpc":"2.0","id":4,"result":{}}'),
    ("S", b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}'),
    ("S", b'{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}'),
    ("C", b'{"jsonrpc":"2.0","id":5,"method":"resources/unsubscribe","params":{"uri":"file:///a"}}'),
    ("S", b'{"jsonrpc":"2.0","id":5,"result":{}}'),
    ("C", b'{"jsonrpc":"2.0","id":6,"method":"prompts/list"}'),
    ("S", b'{"jsonrpc":"2.0","id":6,"result":{"prompts":[{"name":"p","arguments":[]}]}}'),
    (
        "C",
        b'{"jsonrpc":"2.0","id":7,"method":"prompts/get","params":{"name":"p","arguments":{"a":"\\ud83d\\ude00"}}}',
    ),
    (
        "S",
        b'{"jsonrpc":"2.0","id":7,"result":{"messages":[{"role":"user","content":{"type":"text","text":"h"}}]}}',
    ),
    ("S", b'{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}'),
    (
        "C",
        b'{"jsonrpc":"2.0","id":8,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"},'
        b'"argument":{"name":"a","value":"x"}}}',
    ),
    ("S", b'{"jsonrpc":"2.0","id":8,"result":{"completion":{"values":["xy"],"total":1,"hasMore":false}}}'),
    ("C", b'{"jsonrpc":"2.0","id":9,"method":"logging/setLevel","params":{"level":"debug"}}'),
    ("S", b'{"jsonrpc":"2.0","id":9,"result":{}}'),
    (
        "S",
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":[1.0,1e400,-0.0]}}',
    ),
    # A call in the course of which the server asks the client, with ids that the client uses, too.
    (
        "C",
        b'{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"t","arguments":{"n":1.0,"big":1e400,'
        b'"long":123456789012345678901234567890,"s":"\\u00e9\\/"},"_meta":{"progressToken":10}}}',
    ),
    (
        "S",
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":10,"progress":0.5,"total":1}}',
    ),
    (
        "S",
        b'{"jsonrpc":"2.0","id":10,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":10}}',
    ),
    (
        "C",
        b'{"jsonrpc":"2.0","id":10,"result":{"role":"assistant","content":{"type":"text","text":"s"},"model":"m"}}',
    ),
    (
        "S",
        b'{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"?","requestedSchema":{}}}',
    ),
    ("C", b'{"jsonrpc":"2.0","id":"e","error":{"code":-1,"message":"User rejected"}}'),
    ("S", b'{"jsonrpc":"2.0","id":11,"method":"roots/list"}'),
    ("C", b'{"jsonrpc":"2.0","id":11,"result":{"roots":[{"uri":"file:///"}]}}'),
    ("S", b'{"jsonrpc":"2.0","id":12,"method":"ping"}'),
    ("C", b'{"jsonrpc":"2.0","id":12,"result":{}}'),
    (
        "S",
        b'{ "jsonrpc" : "2.0" , "id":10.0,"result":{"content":[{"type":"text","text":"small \\u00e9 \\/"},'
        b'{"type":"image","data":"QUJD","mimeType":"image/png"}],"isError":false,"x":1.50}}',
    ),
    ("C", b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}'),
    ("C", b'{"jsonrpc":"2.0","id":13,"method":"tools/call","params":{"name":"slow"}}'),
    ("C", b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":13,"reason":"late"}}'),
    ("C", b'{"jsonrpc":"2.0","id":14,"method":"tools/call","params":{"name":"t","task":{"ttl":60000}}}'),
    (
        "S",
        b'{"jsonrpc":"2.0","id":14,"result":{"task":{"taskId":"k","status":"working","createdAt":"x","ttl":null}}}',
    ),
    ("C", b'{"jsonrpc":"2.0","id":15,"method":"tasks/get","params":{"taskId":"k"}}'),
    ("S", b'{"jsonrpc":"2.0","id":15,"result":{"taskId":"k","status":"completed"}}'),
    ("C", b'{"jsonrpc":"2.0","id":16,"method":"tasks/result","params":{"taskId":"k"}}'),
    ("S", b'{"jsonrpc":"2.0","id":16,"result":{"content":[{"type":"text","text":"done"}]}}'),
    ("C", b'{"jsonrpc":"2.0","id":17,"method":"tasks/list"}'),
    ("S", b'{"jsonrpc":"2.0","id":17,"result":{"tasks":[]}}'),
    ("C", b'{"jsonrpc":"2.0","id":18,"method":"tasks/cancel","params":{"taskId":"k"}}'),
    ("S", b'{"jsonrpc":"2.0","id":18,"error":{"code":-32602,"message":"done already"}}'),
    (
        "S",
        b'{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"k","status":"completed"}}',
    ),
    ("C", b'{"jsonrpc":"2.0","id":19,"method":"tools/call","params":{"name":"missing"}}'),
    (
        "S",
        b'{"jsonrpc":"2.0","id":19,"error":{"code":-32602,"message":"Unknown tool: missing","data":{"a":1.0}}}',
    ),
    ("S", b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'),
]

STATELESS: list[Line] = [
    ("C", b'{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{%b}}' % META),
    (
        "S",
        b'{"jsonrpc":"2.0","id":"d","result":{"resultType":"complete","supportedVersions":["2026-07-28"],'
        b'"capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"0"},"ttlMs":0,"cacheScope":"private"}}',
    ),
    (
        "C",
        b'{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{},%b}}' % META,
    ),
    (
        "S",
        b'{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{}}}',
    ),
    (
        "C",
        b'{"jsonrpc":"2.0","id":"c1","method":"tools/call","params":{"name":"ask","arguments":{},%b}}' % META,
    ),
    (
        "S",
        b'{"jsonrpc":"2.0","id":"c1","result":{"resultType":"input_required","inputRequests":{"a":{"method":'
        b'"elicitation/create","params":{"message":"?"}}},"requestState":"' + b"s" * 100_000 + b'"}}',
    ),
    (
        "C",
        b'{"jsonrpc":"2.0","id":"c2","method":"tools/call","params":{"name":"ask","arguments":{},"inputResponses":'
        b'{"a":{"action":"accept","content":{}}},"requestState":"s",%b}}' % META,
    ),
    (
        "S",
        b'{"jsonrpc":"2.0","id":"c2","result":{"resultType":"complete","content":[{"type":"text","text":"ok"}]}}',
    ),
    ("C", b'{"jsonrpc":"2.0","id":"c3","method":"tools/call","params":{"name":"later",%b}}' % META),
    ("S", b'{"jsonrpc":"2.0","id":"c3","result":{"resultType":"task","taskId":"k2","status":"working"}}'),
    ("C", b'{"jsonrpc":"2.0","id":"t1","method":"tasks/get","params":{"taskId":"k2",%b}}' % META),
    (
        "S",
        b'{"jsonrpc":"2.0","id":"t1","result":{"resultType":"complete","taskId":"k2","status":"completed",'
        b'"result":{"content":[{"type":"text","text":"ok"}]}}}',
    ),
    ("C", b'{"jsonrpc":"2.0","id":"t2","method":"tasks/update","params":{"taskId":"k2",%b}}' % META),
    ("S", b'{"jsonrpc":"2.0","id":"t2","result":{"resultType":"complete"}}'),
    ("C", b'{"jsonrpc":"2.0","id":"x","method":"com.example/unheard","params":[1,2.0,1e400]}'),
    ("S", b'{"jsonrpc":"2.0","id":"x","error":{"code":-32601,"message":"Method not found"}}'),
    ("C", b'{"jsonrpc":"2.0","method":"notifications/com.example/unheard"}'),
]

ODD: list[Line] = [
    ("C", b""),
    ("C", b"   "),
    ("C", b'{"jsonrpc":"2.0","id":101,"method":"ping"}\r'),
    ("S", b'{"jsonrpc":"2.0","id":101,"result":{}}\r'),
    ("S", b"\r"),
    ("S", b""),
    ("S", b"a line that is no JSON at all"),
    ("C", b'{"jsonrpc":"2.0","id":102,"method":'),
    ("S", b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}'),
    ("C", b'{"jsonrpc":"2.0","id":true,"method":"ping"}'),
    ("S", b'{"jsonrpc":"2.0","id":true,"result":{}}'),
    ("C", b'{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}'),
    (
        "C",
        b'{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"tools/call","params":{"name":"t"}}',
    ),
    ("S", b'{"jsonrpc":"2.0","id":123456789012345678901234567890,"result":{"content":[]}}'),
    ("C", b'{"jsonrpc":"2.0","id":"\\ud83d","method":"tools/call","params":{"name":"t"}}'),
    ("S", b'{"jsonrpc":"2.0","id":"\\ud83d","result":{"content":[{"type":"text","text":"\\udc00"}]}}'),
    ("C", b'\xef\xbb\xbf{"jsonrpc":"2.0","id":103,"method":"ping"}'),
    ("C", b'{"jsonrpc":"2.0","id":104,"method":"ping","params":"\xff\xfe"}'),
    ("S", b'{"jsonrpc":"2.0","id":104,"result":"\xff\xfe"}'),
    (
        "S",
        b'{"jsonrpc":"2.0","id":"nobody asked","result":{"content":[{"type":"text","text":"'
        + b"y" * 90_000
        + b'"}]}}',
    ),
    ("S", b'{"id":105}'),
    ("C", b'{"method":"tools/call"}'),
    ("C", b'{"jsonrpc":"2.0","id":106,"method":"tools/call","params":[1]}'),
    ("S", b'{"jsonrpc":"2.0","id":106,"error":{"code":-32602,"message":"no"}}'),
    ("C", b'{"jsonrpc":"2.0","id":107,"method":"ping","id":108}'),
    ("S", b'{"jsonrpc":"2.0","id":108,"result":{}}'),
    ("C", b'{"jsonrpc":"2.0","id":109,"method":"ping","params":' + b"[" * 20_000 + b"]" * 20_000 + b"}"),
    ("S", b'{"jsonrpc":"2.0","id":109,"result":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"}"),
    (
        "C",
        b'[ {"jsonrpc":"2.0","id":110,"method":"ping"} , {"jsonrpc":"2.0","method":"notifications/initialized"}]',
    ),
    ("S", b'[{"jsonrpc":"2.0","id":110,"result":{}} ]'),
    ("C", b'[{"jsonrpc":"2.0","id":111,"method":"tools/call","params":{"name":"t"}},5,[],null]'),
    (
        "S",
        b'[{"jsonrpc":"2.0","id":111,"result":{"content":[]}},{"jsonrpc":"2.0","id":9,"method":"roots/list"}]',
    ),
    ("C", b"[]"),
    ("S", b"[[[[]]]]"),
    ("C", b"[" * 30_000),
    ("S", b'"a text"'),
]

LISTS: list[Line] = [
    ("C", b'{"jsonrpc":"2.0","id":201,"method":"tools/list"}'),
    (
        "S",
        b'{"jsonrpc":"2.0","id":201,"result":{"tools":[{"name":"t","inputSchema":{"type":"object"},"outputSchema":'
        b'{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}}],"nextCursor":"2"}}',
    ),
    ("C", b'{"jsonrpc":"2.0","id":202,"method":"tools/list","params":{"cursor":"2"}}'),
    ("S", b'{"jsonrpc":"2.0","id":202,"result":{"tools":[{"name":"u","inputSchema":{"type":"object"}}]}}'),
]

LARGE: list[Line] = [
    (
        "C",
        b'{"jsonrpc":"2.0","id":301,"method":"tools/call","params":{"name":"t","arguments":{"tokenBudget":200}}}',
    ),
    (
        "S",
        b'{"jsonrpc":"2.0","id":301,"result":{"content":[{"type":"text","text":"' + b"z " * 100_000 + b'"}],'
        b'"structuredContent":{"a":"' + b"z " * 100_000 + b'"}}}',
    ),
    (
        "C",
        b'{"jsonrpc":"2.0","id":302,"method":"tools/call","params":{"name":"envelope_read","arguments":{}}}',
    ),
    ("S", b'{"jsonrpc":"2.0","id":302,"error":{"code":-32602,"message":"' + b"no " * 100_000 + b'"}}'),
]

UNTOUCHED = OLDER + STATELESS + ODD
EVERYTHING = LISTS + LARGE + UNTOUCHED
