"""What a config says, one file for each form that it passes through.

::

    text            what files, studies and words say; settings without effect are rejected
      │             `paths` reads and sets dotted keys, `class_paths` names the classes
      │             `sections` checks the top level and finds the classes
    resolved        each section parsed to the types of its class, with defaults and seed
      │             `signatures` says what a class accepts, `messages` what was wrong
      │             `metric_classes` builds the metrics of torchmetrics, to check them
    record          the resolved config in plain values (`plain_values`), stored in checkpoints
                    `admission` says what the record of a file may name
    identity        the digest of what affects the results of a run, made of the complete text

The command line, `actlab.studies.plan` and `actlab.experiments` call these files. They call each
other downwards: `record` calls `identity` for digests of files, `resolved` and `sections` call
`signatures`, `signatures` calls `class_paths` and `paths`, and nothing here calls
`resolved` or `record`. `values` compares single values, `labels` writes them, `metrics` reads the
names of metrics, `batches` counts batches up to a limit. `text`, `identity`, `paths`,
`class_paths`, `values`, `labels` and `metrics` load neither torch nor Lightning.
"""
